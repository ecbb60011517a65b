"""Producer and consumer in one process: the batch itself is handed over."""

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import BlockTooLarge, StaleHandle
from flowgraph.runtime.transport.interface import Address


class InProcess:
    """`budget` bounds the bytes of batches that are put and not freed."""

    kind = "in-process"

    def __init__(self, owner: str, budget: int) -> None:
        self._owner = owner
        self._budget = budget
        self._batches: dict[int, Batch] = {}
        self._next = 0
        self.used = 0

    def put(self, batch: Batch, stream: str = "") -> Address | None:
        if batch.nbytes > self._budget:
            raise BlockTooLarge(
                f"stream '{stream}': a block of {batch.rows} records takes {batch.nbytes} bytes, "
                f"the channel of '{self._owner}' has {self._budget}"
            )
        if self.used + batch.nbytes > self._budget:
            return None
        number, self._next = self._next, self._next + 1
        self._batches[number] = batch
        self.used += batch.nbytes
        return Address(kind=self.kind, owner=self._owner, endpoint="", block=(number,))

    def get(self, address: Address) -> Batch:
        batch = self._batches.get(address.block[0]) if address.owner == self._owner else None
        if batch is None:
            raise StaleHandle(f"batch {address.block} of '{address.owner}' was freed")
        return batch

    def done(self, address: Address) -> None:
        """Nothing was copied."""

    def free(self, address: Address) -> None:
        self.used -= self.get(address).nbytes
        del self._batches[address.block[0]]

    def close(self) -> None:
        self._batches.clear()
        self.used = 0
