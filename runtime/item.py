"""One piece of work: a task over some units of a step, with the batches that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
