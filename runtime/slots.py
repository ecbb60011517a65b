"""What a place in a segment is in, from its being taken to its being free again.

    FREE ─▶ RESERVED ─▶ FILLED ─▶ READY ─▶ LEASED ─▶ FREE

The owner of the segment takes a place, copies the bytes in, and makes them readable; the
orchestrator counts who will read them (`orchestrator/blocks.py`) and tells the owner when the last
reader is done, and nothing looks at them any more (`worker/leases.py`). To the owner a leased place
is READY: it only has to leave it alone. A writer that is lost leaves RESERVED and FILLED places
behind, which nobody was told of and which go with its segment; READY and LEASED ones stay readable
until their readers are done.
"""

import enum
import secrets
from collections.abc import Mapping

from flowgraph.ir.errors import InternalError


class Slot(enum.Enum):
    """FILLED: the bytes are there. READY: whoever has the handle may read them. LEASED: somebody
    will, or looks at them; only the orchestrator knows.
    """

    FREE = "free"
    RESERVED = "reserved"
    FILLED = "filled"
    READY = "ready"
    LEASED = "leased"


ALLOWED: Mapping[Slot, frozenset[Slot]] = {
    Slot.FREE: frozenset({Slot.RESERVED}),
    Slot.RESERVED: frozenset({Slot.FILLED, Slot.FREE}),
    Slot.FILLED: frozenset({Slot.READY}),
    Slot.READY: frozenset({Slot.LEASED, Slot.FREE}),
    Slot.LEASED: frozenset({Slot.FREE}),
}


class Slots:
    """The places of one segment, by offset, as its owner knows them.

    Law: a place has one state; every change is in `ALLOWED`; a generation is given to one use of
    one place, and rises. Starts at a random number, so that another segment of a process with the
    same pid and descriptor does not repeat any.
    """

    def __init__(self) -> None:
        self._states: dict[int, Slot] = {}  # of those that are not free
        self._generations: dict[int, int] = {}  # of those that are ready
        self._last = secrets.randbits(30) << 32

    def __len__(self) -> int:
        """Places that are readable."""
        return len(self._generations)

    def state(self, offset: int) -> Slot:
        return self._states.get(offset, Slot.FREE)

    def generation(self, offset: int) -> int:
        """Of what is readable there; 0 when nothing is."""
        return self._generations.get(offset, 0)

    def reserve(self, offset: int) -> None:
        self._advance(offset, Slot.RESERVED)

    def abandon(self, offset: int) -> None:
        """The bytes will not come."""
        self._end(offset, Slot.RESERVED)

    def fill(self, offset: int) -> int:
        """The bytes have come; the generation of this use of the place."""
        self._advance(offset, Slot.FILLED)
        self._last += 1
        return self._last

    def publish(self, offset: int, generation: int) -> None:
        """They may be read."""
        self._advance(offset, Slot.READY)
        self._generations[offset] = generation

    def free(self, offset: int) -> None:
        """The last reader is done."""
        self._end(offset, Slot.READY)
        del self._generations[offset]

    def clear(self) -> None:
        """The segment is over."""
        self._states.clear()
        self._generations.clear()

    def _end(self, offset: int, before: Slot) -> None:
        found = self.state(offset)
        if found is not before:
            raise InternalError(f"the place at {offset} is {found.name}, not {before.name}")
        self._advance(offset, Slot.FREE)

    def _advance(self, offset: int, after: Slot) -> None:
        before = self.state(offset)
        if after not in ALLOWED[before]:
            raise InternalError(
                f"the place at {offset} cannot go from {before.name} to {after.name}"
            )
        if after is Slot.FREE:
            del self._states[offset]
        else:
            self._states[offset] = after
