"""Between processes of one machine: the pool's segments, read without a copy."""

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.interface import Address


class SharedMemory:
    """The worker's own segment, and a reader of everybody's."""

    kind = "shared-memory"

    def __init__(self, owner: str, budget: int) -> None:
        self._owner = owner
        self._segment = Segment(owner, budget)
        self._reader = Reader()

    @property
    def used(self) -> int:
        return self._segment.used

    def put(self, batch: Batch, stream: str = "") -> Address | None:
        handle = self._segment.try_write(batch, stream)
        if handle is None:
            return None
        return Address(kind=self.kind, owner=self._owner, endpoint="", block=handle.to_plain())

    def get(self, address: Address) -> Batch:
        return self._reader.open(Handle.from_plain(address.block))

    def done(self, address: Address) -> None:
        """Nothing was copied."""

    def free(self, address: Address) -> None:
        self._segment.free(Handle.from_plain(address.block))

    def close(self) -> None:
        self._segment.close()
