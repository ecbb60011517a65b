"""What goes into and out of a rank beside items and batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowgraph.runtime.batch import Batch

Sums = dict[str, tuple[float, float]]
"""Figures as (sum, count), so that any grouping of work adds up to the same mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOrder:
    """All gradients of a part of a step are in: take an optimizer step.

    divisor: the part's global sum of loss weights; 0 for a module without samples, whose version
    still moves. owners: (unit, rank) in unit order, saying who computed which unit's gradient; read
    in exact mode only, where the order of units is the order of addition.
    """

    step: int
    part: int
    divisor: float
    owners: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainResult:
    """What training on one item gave.

    gradients: for each joined stream whose module is trained too, a batch a unit with the rows of
    that unit's input and one column, the gradient of the unnormalised loss.
    weights: each unit's share of the divisor, the sum of its effective `loss_mask`.
    sums: unnormalised sums: what the loss returned, `tokens` (the sum of weights), `entropy`
    (nats), and, where rows have a `reward`, `reward` and `rows`.
    dropped: (sample id, reason) of rows that the graph's over-long policy left out.
    """

    weights: Mapping[int, float]
    sums: Mapping[str, float]
    gradients: Mapping[str, tuple[Batch, ...]] = field(default_factory=dict)
    dropped: tuple[tuple[int, str], ...] = ()

    @property
    def metrics(self) -> Sums:
        """The sums with their counts: rewards are a row's mean, all else a token's."""
        tokens, rows = self.sums["tokens"], self.sums.get("rows", 0.0)
        counts = {"reward": rows, "tokens": 1.0, "rows": 1.0}
        return {name: (value, counts.get(name, tokens)) for name, value in self.sums.items()}
