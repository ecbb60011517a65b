"""One piece of work: a task over some units of a step, with the batches that it reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from flowgraph.runtime.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """What an executor is asked to do; it has everything in it.

    id: unique in a run. task: the plan task's name. variant: 0 for training, i >= 1 for the i-th
    `evaluate` stage. step, part: the step, and the optimizer update within it that the units
    belong to. version: of the weights that it must run at.
    units: numbers of the units, within the step. samples: their sample ids, aligned with units.
    inputs: for each stream that crosses the task's border, a batch a unit, aligned with units.
    """

    id: int
    task: str
    variant: int = 0
    step: int = 0
    part: int = 0
    version: int = 0
    units: tuple[int, ...] = ()
    samples: tuple[tuple[int, ...], ...] = ()
    inputs: Mapping[str, tuple[Batch, ...]] = field(default_factory=dict)


def members(batch: Batch, samples: Sequence[int]) -> Batch:
    """The rows that belong to these samples, in their order; the batch itself when all do.

    Blocks are cut where they were made, units where membership was decided: these may differ.
    """
    mask = np.isin(batch["sample"].values, np.asarray(samples, np.int64))
    return batch if mask.all() else batch.take(mask)
