"""A worker's view of other nodes' blocks: fetched to be read, kept while they are looked at.

Guarantees: a block of another node is fetched once while anybody here looks at it; its bytes count
from before the first is asked for until the last view of them is gone; every fetch ends, with all
its bytes or a named error (see `receiving.Limits`), and goes on while its reader computes.
Assumes: whoever reads holds a lease, so that the block is not freed meanwhile.
"""

import select
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.incarnation import process_of
from flowgraph.runtime.pool import Handle
from flowgraph.runtime.transport.client import PATIENT, Source
from flowgraph.runtime.transport.failures import BlockUnreachable
from flowgraph.runtime.transport.fetcher import Fetcher
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.transport.receiving import Limits

Bytes = NDArray[np.uint8]

Block = tuple[str, int, int]
"""Which process wrote it, where, and which use of the place it is."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Where processes live. of: node by worker. porters: by node, where its blocks can be had."""

    of: Mapping[str, str]
    porters: Mapping[str, str]


@dataclass(slots=True, eq=False)
class Arrival:
    """Blocks for one reader; they stay while this lives. missing: porters, by block to come."""

    copies: dict[Block, Bytes] = field(default_factory=dict)
    missing: dict[Block, str] = field(default_factory=dict)
    error: RunFailed | None = None


@dataclass(slots=True)
class _Coming:
    """A block on its way, and who waits for it."""

    block: Block
    memory: Bytes
    readers: list[Arrival] = field(default_factory=list)


class Remote:
    """One worker's copies of other nodes' blocks. here: its node. budget: bytes of them all."""

    def __init__(
        self, here: str, nodes: Nodes, keyring: Keyring, budget: int, limits: Limits = PATIENT
    ) -> None:
        self._here = here
        self._nodes = nodes
        self.budget = budget
        self._fetcher = Fetcher(keyring, limits)
        self._copies: weakref.WeakValueDictionary[Block, Bytes] = weakref.WeakValueDictionary()
        self._coming: dict[Block, _Coming] = {}
        self._fetches: dict[int, _Coming] = {}
        self.used = 0
        self.fetched = 0

    def fileno(self) -> int:
        """Readable when something arrived, for `look` to take."""
        return self._fetcher.fileno()

    @property
    def kept(self) -> dict[Block, int]:
        """Bytes of the copies that are here, by block."""
        return {block: memory.nbytes for block, memory in self._copies.items()}

    def elsewhere(self, handle: Handle) -> bool:
        """Whether the block lives on another node."""
        return self._node(handle) != self._here

    def fits(self, handles: Sequence[Handle]) -> bool:
        """Whether the budget has room now for those that are neither here nor on their way."""
        missing = {_block(handle): handle.nbytes for handle in handles if self._lacks(handle)}
        return self.used + sum(missing.values()) <= self.budget

    def fetch(self, handles: Sequence[Handle]) -> Arrival:
        """Begin to fetch those that are not here; never waits."""
        arrival = Arrival()
        for handle in handles:
            block = _block(handle)
            copy = self._copies.get(block)
            if copy is None:
                coming = self._coming.get(block) or self._begin(handle)
                if block not in arrival.missing:
                    arrival.missing[block] = porter_of(self._node(handle))
                    coming.readers.append(arrival)
                copy = coming.memory
            arrival.copies[block] = copy
        return arrival

    def look(self) -> None:
        """Take what has arrived; never waits."""
        for ended in self._fetcher.ended():
            coming = self._fetches.pop(ended.fetch)
            del self._coming[coming.block]
            if ended.error is None:
                self._copies[coming.block] = coming.memory
            for reader in coming.readers:
                del reader.missing[coming.block]
                reader.error = reader.error or ended.error

    def is_here(self, arrival: Arrival) -> bool:
        """Whether all of it has come, as of the last `look`. Raises BlockUnreachable."""
        error = arrival.error
        if error is not None:
            raise BlockUnreachable(str(error), hint=error.hint) from error
        return not arrival.missing

    def open(self, handle: Handle) -> Batch:
        """The batch, read-only; see `open_all` for what it raises."""
        return self.open_all([handle])[0]

    def open_all(self, handles: Sequence[Handle]) -> list[Batch]:
        """The batches; waits for those that are not here. Raises BlockUnreachable."""
        arrival = self.fetch(handles)
        self._wait(arrival)
        return [
            Batch.read(handle.layout, arrival.copies[_block(handle)].data.toreadonly())
            for handle in handles
        ]

    def close(self) -> None:
        self._fetcher.close()

    def _wait(self, arrival: Arrival) -> None:
        while not self.is_here(arrival):
            select.select([self], [], [])
            self.look()

    def _begin(self, handle: Handle) -> _Coming:
        coming = _Coming(_block(handle), self._room(handle))
        self._coming[coming.block] = coming
        self._fetches[self._fetcher.start(self._source(handle), coming.memory.data)] = coming
        return coming

    def _room(self, handle: Handle) -> Bytes:
        memory = np.empty(handle.nbytes, np.uint8)
        self.used += handle.nbytes
        self.fetched += handle.nbytes
        weakref.finalize(memory, self._gone, handle.nbytes).atexit = False
        return memory

    def _gone(self, nbytes: int) -> None:
        self.used -= nbytes

    def _lacks(self, handle: Handle) -> bool:
        block = _block(handle)
        return self.elsewhere(handle) and block not in self._copies and block not in self._coming

    def _node(self, handle: Handle) -> str:
        worker, _ = process_of(handle.owner)
        return self._nodes.of[worker]

    def _source(self, handle: Handle) -> Source:
        node = self._node(handle)
        return Source(
            endpoint=self._nodes.porters[node], server=porter_of(node), block=handle.to_plain()
        )


def _block(handle: Handle) -> Block:
    return handle.owner, handle.offset, handle.generation
