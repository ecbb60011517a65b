"""Mixtures when a count of devices is the only constraint: an exact dynamic program.

For each part, the fastest mixture of exactly `d` devices, for all d (a bounded knapsack); then the
highest rate for which the devices that the parts need add up to no more than there are. Kinds and
nodes are not looked at, so that for a problem which has these the rate is a bound of any answer's,
whether parts run one option or several.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowgraph.passes.matching.problem import EPSILON, Choice, Option, Part, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Counted:
    """rate: of the slowest part, which none exceeds. choices: by part, the fewest devices for it;
    they fit a cluster whose only constraint is the count."""

    rate: float
    choices: Mapping[str, tuple[Choice, ...]]

    @property
    def devices(self) -> int:
        return sum(choice.devices for own in self.choices.values() for choice in own)


def count_devices(problem: Problem) -> Counted | None:
    """The fastest by count alone; None when the devices are too few for all parts."""
    import numpy as np  # 150 ms, and most plans are decided without

    total = sum(nodes.devices * nodes.count for nodes in problem.nodes)
    tables = [_Table(problem, part, total) for part in problem.parts]
    if not tables or any(table.best[-1] <= 0 for table in tables):
        return None
    rates = np.unique(np.concatenate([table.best for table in tables]))
    rates = rates[rates > 0]
    if sum(table.needs(rates[0]) for table in tables) > total:
        return None
    low, high = 0, len(rates) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if sum(table.needs(rates[middle]) for table in tables) <= total:
            low = middle
        else:
            high = middle - 1
    chosen = {table.part.name: table.choices(table.needs(rates[low])) for table in tables}
    return Counted(min(sum(c.rate for c in own) for own in chosen.values()), chosen)


class _Table:
    """One part's fastest mixtures. best: float64[total + 1], steps/s by devices at most."""

    def __init__(self, problem: Problem, part: Part, total: int) -> None:
        import numpy as np

        self.part = part
        self._exact: NDArray[np.float64] = np.full(total + 1, -np.inf)
        self._exact[0] = 0.0
        self._taken: list[tuple[Choice, NDArray[np.bool_]]] = []
        for option in part.options:
            most = min(option.most, problem.capacity(option.kind) // option.devices)
            for bundle in _bundles(option, most):
                self._offer(bundle)
        self.best: Any = np.maximum.accumulate(self._exact)

    def needs(self, rate: float) -> int:
        """The fewest devices that have the rate; more than there are when none have."""
        import numpy as np

        return int(np.searchsorted(self.best, rate * (1 - EPSILON)))

    def choices(self, devices: int) -> tuple[Choice, ...]:
        """The fastest mixture of exactly that many devices."""
        counts: dict[Option, int] = {}
        for bundle, taken in reversed(self._taken):
            if taken[devices]:
                counts[bundle.option] = counts.get(bundle.option, 0) + bundle.replicas
                devices -= bundle.devices
        return tuple(Choice(option, count) for option, count in sorted(counts.items(), key=_name))

    def _offer(self, bundle: Choice) -> None:
        """Take the bundle once, wherever that is faster."""
        import numpy as np

        size = bundle.devices
        if size >= len(self._exact):
            return
        taken = np.zeros(len(self._exact), np.bool_)
        with_it = self._exact[:-size] + bundle.rate
        taken[size:] = with_it > self._exact[size:]
        if taken.any():
            self._exact[taken] = with_it[taken[size:]]
            self._taken.append((bundle, taken))


def _name(item: tuple[Option, int]) -> str:
    return item[0].name


def _bundles(option: Option, most: int) -> Iterator[Choice]:
    """Bundles of 1, 2, 4, ... and a rest, of which each count up to `most` is a sum.

    An option that is used at least twice when it is used may here be used once: a bound stays one.
    """
    size = 1
    while most > 0:
        count = min(size, most)
        yield Choice(option, count)
        most -= count
        size *= 2
