"""The workers of one group, of which the least loaded with room is known without a look at all.

Law: whoever has room stands in the heap under its present load; entries of an earlier load are
dropped when they come up.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowgraph.runtime.orchestrator.state import Worker

SLACK = 64
"""Entries beyond a few for each worker that a heap may hold before it is made anew."""


class Roster:
    """Least loaded is: fewest samples or items held, then fewest served, then the first."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """workers: by index."""
        self.workers = workers
        self._heap: list[tuple[int, int, int]] = []

    def look(self) -> None:
        """Anything may have happened to any of them."""
        self._heap = [(w.inflight, w.served, w.index) for w in self.workers if w.room > 0]
        heapify(self._heap)

    def offer(self, worker: Worker) -> None:
        """Its load is another than before."""
        if worker.room > 0:
            heappush(self._heap, (worker.inflight, worker.served, worker.index))
            if len(self._heap) > 4 * len(self.workers) + SLACK:
                self.look()

    def handed(self, worker: Worker) -> None:
        """Whom `best` has just named got an item: the top of the heap is its earlier load."""
        if worker.room > 0:
            heapreplace(self._heap, (worker.inflight, worker.served, worker.index))
        else:
            heappop(self._heap)

    def best(self) -> Worker | None:
        """Who gets the next item; None when nobody has room."""
        heap = self._heap
        while heap:
            inflight, served, index = heap[0]
            worker = self.workers[index]
            if worker.inflight == inflight and worker.served == served and worker.room > 0:
                return worker
            heappop(heap)
        return None
