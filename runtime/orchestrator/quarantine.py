"""Samples that were put aside, since the user's code raised on them each time it was tried.

Law: membership is the first N of the source's order that are not put aside and pass the filters; so
a run that puts a sample aside and goes back to its last checkpoint ends as one that knew it from
the start. Of a source that is read again and again, the record is what is put aside: from the
position where it failed on, every later position that reads it again is left out as well.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.graph import Graph
from flowgraph.runtime.randomness import order
from flowgraph.runtime.stages.sources import order_seed


class Quarantine:
    """samples: positions in the source's endless order, which are sample ids."""

    def __init__(self, graph: Graph, samples: Iterable[int] = ()) -> None:
        source = graph.by_op("source")[0]
        self._shuffle = bool(source.attributes.get("shuffle", False))
        self._seed = order_seed(graph.seed, int(source.attributes.get("seed", 0)))
        self._orders: dict[int, NDArray[np.int64]] = {}
        self.samples = frozenset(samples)
        self._size = -1
        self._first: dict[int, int] = {}  # by record, the first position that was put aside

    def excludes(self, position: int, size: int) -> bool:
        """Whether the position is left out. size: records of the source; -1 when not known."""
        if not self.samples:
            return False
        if position in self.samples:
            return True
        if size <= 0:
            return False
        self._know(size)
        first = self._first.get(self._record(position))
        return first is not None and first < position

    def everything(self, position: int, size: int) -> bool:
        """Whether nothing is left to read from this position on."""
        if size <= 0 or len(self.samples) < size:
            return False
        self._know(size)
        return len(self._first) == size and all(at <= position for at in self._first.values())

    def _know(self, size: int) -> None:
        if size == self._size:
            return
        self._size, self._orders, self._first = size, {}, {}
        for sample in sorted(self.samples):
            self._first.setdefault(self._record(sample), sample)

    def _record(self, position: int) -> int:
        epoch, place = divmod(position, self._size)
        if not self._shuffle:
            return place
        if epoch not in self._orders:
            if len(self._orders) > 2:  # a walk straddles two epochs at most
                self._orders.clear()
            self._orders[epoch] = order(self._seed, epoch, self._size)
        return int(self._orders[epoch][place])


def walk(
    quarantine: Quarantine, start: int, count: int, *, size: int, loop: bool
) -> tuple[Sequence[int], int]:
    """The next `count` positions from `start` on that are not left out, fewer at the source's end.

    Also the position after the last that was looked at. size: -1 when not known.
    """
    end = size if not loop and size >= 0 else None
    if not quarantine.samples:
        stop = start + count if end is None else max(start, min(start + count, end))
        return range(start, stop), stop
    found: list[int] = []
    at = start
    while len(found) < count and (end is None or at < end):
        if loop and quarantine.everything(at, size):
            break
        if not quarantine.excludes(at, size):
            found.append(at)
        at += 1
    return tuple(found), at
