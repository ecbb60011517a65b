"""Orders that were handed to a worker and cannot begin yet: what they read is on its way.

Blocks of other nodes are asked for in the order in which their orders came, as there is room, and
travel while the worker does something else. An order begins when all of its blocks are here, be it
before an earlier one: nothing that a run computes depends on who begins first (gradients of `exact`
are added in an order of their own, others as they come).

Guarantee: copies take at most the budget and one item; one item can always go, unless what the
user's code keeps of items that are over takes more than the budget, and goes on to: then the worker
ends by name.
"""

import gc
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.messages import Backward, BlockName, PlainHandle, Run
from flowgraph.runtime.pool import Handle
from flowgraph.runtime.reader import KEEP_COPIES
from flowgraph.runtime.transport.remote import Arrival, Remote
from flowgraph.runtime.worker.grace import Grace
from flowgraph.runtime.worker.items import blocks_of
from flowgraph.runtime.worker.leases import name_of

LATE_S = 1.0
"""After which an order that waits for blocks is told of: `flowgraph status` says so."""


@dataclass(slots=True, eq=False)
class Handed:
    """An order. blocks: those of other nodes that it reads. arrival: once they are asked for.

    since: when it was handed over, by the clock.
    """

    order: Run | Backward
    blocks: tuple[Handle, ...]
    since: float
    arrival: Arrival | None = None


class Arrivals:
    """remote: None where nothing lives elsewhere: every order can begin at once. grace: for others
    here who may let go of copies.
    """

    def __init__(
        self,
        remote: Remote | None,
        clock: Callable[[], float] = time.monotonic,
        grace: Grace | None = None,
    ) -> None:
        self._remote = remote
        self._grace = grace or Grace()
        self._clock = clock
        self._waiting: deque[Handed] = deque()  # for room, in order
        self._coming: list[Handed] = []
        self._guests: set[Handed] = set()  # asked for, and not ended: they have copies here
        self._open: set[int] = set()  # items that wait for their gradient
        self._readers: dict[BlockName, tuple[str, str]] = {}  # task and stream of what is here
        self._told: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())

    def hand(self, order: Run | Backward) -> Handed:
        """The order was handed over. Follow it up with `look`."""
        if self._remote is None:
            return Handed(order, (), 0.0)
        handed = Handed(order, self._elsewhere(self._remote, order), self._clock())
        if handed.blocks:
            self._waiting.append(handed)
        return handed

    def look(self) -> None:
        """Take what has come, and ask for more where there is room now. Never waits."""
        if self._remote is None:
            return
        self._remote.look()
        while self._waiting and self._may_come(self._remote, self._waiting[0]):
            handed = self._waiting.popleft()
            handed.arrival = self._remote.fetch(handed.blocks)
            self._remember(self._remote, handed.order)
            self._guests.add(handed)
            self._coming.append(handed)

    def is_here(self, handed: Handed) -> bool:
        """Whether it can begin, as of the last `look`. Raises BlockUnreachable."""
        if not handed.blocks:
            return True
        assert self._remote is not None
        return handed.arrival is not None and self._remote.is_here(handed.arrival)

    def begun(self, handed: Handed) -> None:
        """It looks at its blocks by itself now: they stay for as long as it does."""
        if handed.blocks:
            handed.arrival = None
            self._coming.remove(handed)

    def ended(self, handed: Handed, goes_on: bool = False) -> None:
        """It looks at nothing any more; what its reader keeps still takes room.

        goes_on: its item keeps what a backward needs, until that has ended.
        """
        self._guests.discard(handed)
        if goes_on:
            self._open.add(handed.order.item)
        else:
            self._open.discard(handed.order.item)

    def wake_in(self) -> float | None:
        """Seconds until there may be `news`, or room, though nothing arrives."""
        if self._grace.on:
            return self._grace.wake_in()
        told, _ = self._told
        since = [o.since for o in self._coming if o.order.item not in told and self._misses(o)]
        return max(0.0, min(since) + LATE_S - self._clock()) if since else None

    def news(self) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
        """(items, porters): which wait for whose blocks longer than `LATE_S`, if it has changed."""
        if not self._coming and not self._told[0]:
            return None
        before = self._clock() - LATE_S
        late = [one for one in self._coming if one.since <= before and self._misses(one)]
        porters = {name for one in late for name in self._misses(one)}
        now = (tuple(sorted({one.order.item for one in late})), tuple(sorted(porters)))
        if now == self._told:
            return None
        self._told = now
        return now

    def _may_come(self, remote: Remote, handed: Handed) -> bool:
        """With no other's copies here it may, whatever its size."""
        if self._guests:
            return remote.fits(handed.blocks)
        return self._has_room(remote)

    def _has_room(self, remote: Remote) -> bool:
        """All copies that are here now are of items that are over. False: somebody may yet let go
        of some. Raises StageFailed when nobody has.

        Where items wait for their gradient, copies are theirs: more must come, so that it does.
        """
        waits = self._grace.on and not self._grace.over
        if not self._open and remote.used > remote.budget and not waits:
            gc.collect()
        if self._open or remote.used <= remote.budget:
            self._grace.end()
            return True
        if waits or (not self._grace.on and self._grace.begin()):
            return False
        kept: dict[tuple[str, str], int] = {}
        for block, nbytes in remote.kept.items():
            reader = self._readers.get(block, ("", ""))
            kept[reader] = kept.get(reader, 0) + nbytes
        (task, stream), nbytes = max(kept.items(), key=lambda one: one[1])
        cause = (
            f"keeps {nbytes:,} bytes of stream '{stream}' after its work was done, copies of "
            f"another node's, of which this worker may have {remote.budget:,}"
        )
        raise StageFailed(task, None, cause, hint=KEEP_COPIES)

    def _remember(self, remote: Remote, order: Run | Backward) -> None:
        """Whose the order's blocks are, in case that they are kept."""
        self._readers = {b: r for b, r in self._readers.items() if b in remote.kept}
        if isinstance(order, Run):
            for stream, units in order.inputs.items():
                names = [name_of(handle) for unit in units for handle in unit]
                self._readers.update(dict.fromkeys(names, (order.task, stream)))

    @staticmethod
    def _misses(handed: Handed) -> set[str]:
        return set() if handed.arrival is None else set(handed.arrival.missing.values())

    @staticmethod
    def _elsewhere(remote: Remote, order: Run | Backward) -> tuple[Handle, ...]:
        blocks: list[PlainHandle] = (
            blocks_of(order) if isinstance(order, Run) else list(order.gradients)
        )
        return tuple(filter(remote.elsewhere, map(Handle.from_plain, blocks)))
