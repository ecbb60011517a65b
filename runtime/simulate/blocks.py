"""Pools without payload: who holds how much, of which stream, and that no block is lost.

Laws: a block is freed once, by its owner, after it was written, or goes with the segment of a lost
owner; nobody reads a block that is not there; no pool holds more than its budget.
"""

from dataclasses import dataclass, field

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import Free, PlainHandle
from flowgraph.runtime.orchestrator.blocks import block_id


@dataclass(slots=True)
class Level:
    """How much there is of something, and how much there ever was at once."""

    records: int = 0
    bytes: int = 0
    most_records: int = 0
    most_bytes: int = 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self.most_records = max(self.most_records, self.records)
        self.most_bytes = max(self.most_bytes, self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """A block that a worker is to write. apart: in memory of its own, as weights are."""

    stream: str
    records: int
    bytes: int
    apart: bool = False


@dataclass(slots=True)
class Blocks:
    """All blocks of all processes, by their tokens. written, freed: how many there were."""

    budget: int
    live: dict[tuple[str, int, int], Want] = field(default_factory=dict)
    pools: dict[str, Level] = field(default_factory=dict)
    streams: dict[str, Level] = field(default_factory=dict)
    written: int = 0
    freed: int = 0

    def write(self, owner: str, want: Want) -> PlainHandle | None:
        """The block's handle; None when the owner's pool has no room for it now."""
        pool = self.pools.setdefault(owner, Level())
        if want.bytes > self.budget:
            raise InternalError(f"a block of '{want.stream}' is larger than a whole pool")
        if not want.apart and pool.bytes + want.bytes > self.budget:
            return None
        self.written += 1
        self.live[(owner, self.written * 64, self.written)] = want
        if not want.apart:
            pool.add(want.records, want.bytes)
        self.streams.setdefault(want.stream, Level()).add(want.records, want.bytes)
        return (owner, 0, 0, self.written * 64, want.bytes, self.written, want.records, ())

    def free(self, owner: str, message: Free) -> None:
        for offset, generation in message.blocks:
            want = self.live.pop((owner, offset, generation), None)
            if want is None:
                raise InternalError(f"{owner} was told to free block {generation}, which is gone")
            self._end(owner, want)

    def close(self, owner: str) -> None:
        """A lost process's segment ends, with what it had written and nobody was told of."""
        for key in [key for key in self.live if key[0] == owner]:
            self._end(owner, self.live.pop(key))

    def _end(self, owner: str, want: Want) -> None:
        self.freed += 1
        if not want.apart:
            self.pools[owner].add(-want.records, -want.bytes)
        self.streams[want.stream].add(-want.records, -want.bytes)

    def read(self, handle: PlainHandle) -> Want:
        """What the block holds. Raises InternalError when it was freed already."""
        want = self.live.get(block_id(handle))
        if want is None:
            raise InternalError(f"block {block_id(handle)} was freed before it was read")
        return want
