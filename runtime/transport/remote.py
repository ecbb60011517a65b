"""A worker's view of other nodes' blocks: fetched to be read, kept while they are looked at.

Guarantees: a block of another node is fetched once while anybody here looks at it; its bytes count
from before the first is asked for until the last view of them is gone; every fetch ends, with all
its bytes or a named error (see `receiving.Limits`).
Assumes: whoever reads holds a lease, so that the block is not freed meanwhile.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.incarnation import process_of
from flowgraph.runtime.pool import Handle
from flowgraph.runtime.transport.client import PATIENT, BlockClient, Source
from flowgraph.runtime.transport.failures import BlockUnreachable
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


class Remote:
    """One worker's copies of other nodes' blocks. here: its node. budget: bytes of them all."""

    def __init__(
        self, here: str, nodes: Nodes, keyring: Keyring, budget: int, limits: Limits = PATIENT
    ) -> None:
        self._here = here
        self._nodes = nodes
        self._budget = budget
        self._client = BlockClient(keyring, limits=limits)
        self._copies: weakref.WeakValueDictionary[Block, Bytes] = weakref.WeakValueDictionary()
        self.used = 0
        self.fetched = 0

    def elsewhere(self, handle: Handle) -> bool:
        """Whether the block lives on another node."""
        return self._node(handle) != self._here

    def fits(self, handles: Sequence[Handle]) -> bool:
        """Whether the budget has room now for those that are not here yet."""
        missing = {_block(handle): handle.nbytes for handle in handles if self._lacks(handle)}
        return self.used + sum(missing.values()) <= self._budget

    def open(self, handle: Handle) -> Batch:
        """The batch, read-only; see `open_all` for what it raises."""
        return self.open_all([handle])[0]

    def open_all(self, handles: Sequence[Handle]) -> list[Batch]:
        """The batches, once all of them are here. Raises BlockUnreachable."""
        blocks = map(_block, handles)
        copies = {block: self._copies[block] for block in blocks if block in self._copies}
        running: dict[int, Block] = {}
        for handle in handles:
            block = _block(handle)
            if block not in copies:
                copies[block] = self._room(handle)
                running[self._client.start(self._source(handle), copies[block].data)] = block
        self._wait(running)
        self._copies.update(copies)
        return [
            Batch.read(handle.layout, copies[_block(handle)].data.toreadonly())
            for handle in handles
        ]

    def close(self) -> None:
        self._client.close()

    def _wait(self, running: dict[int, Block]) -> None:
        error: RunFailed | None = None
        while running:
            for ended in self._client.turn(1000):
                del running[ended.fetch]
                error = error or ended.error
        if error is not None:
            raise BlockUnreachable(str(error), hint=error.hint) from error

    def _room(self, handle: Handle) -> Bytes:
        memory = np.empty(handle.nbytes, np.uint8)
        self.used += handle.nbytes
        self.fetched += handle.nbytes
        weakref.finalize(memory, self._gone, handle.nbytes).atexit = False
        return memory

    def _gone(self, nbytes: int) -> None:
        self.used -= nbytes

    def _lacks(self, handle: Handle) -> bool:
        return self.elsewhere(handle) and _block(handle) not in self._copies

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
