"""Between hosts: blocks stay in their owner's segment, and are fetched into the reader's.

Law 4 on the wire: the reader takes room in its own segment before the first byte is asked for, so
that what is in flight is in the budget; without room `get` says so, and the reader waits.
"""

import threading

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.client import PATIENT, BlockClient, Source
from flowgraph.runtime.transport.interface import Address
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.receiving import Limits
from flowgraph.runtime.transport.server import BlockServer


class NoRoom(RunFailed):
    """The reader's own segment has no room for the block now: release some, then get it again."""


class ZeroMq:
    """One worker's end: a segment, a thread that serves its blocks, and a client.

    listen: see `BlockServer`. The thread holds no lock that work needs, and touches the segment's
    memory only by reading; it ends with `close`.
    """

    kind = "zeromq"

    def __init__(
        self,
        owner: str,
        budget: int,
        listen: str,
        keyring: Keyring | None = None,
        *,
        trusted: bool = False,
        limits: Limits = PATIENT,
    ) -> None:
        self._owner = owner
        self._segment = Segment(owner, budget)
        self._reader = Reader()
        self._blocks = PoolBlocks(Reader())
        self._server = BlockServer(self._blocks, listen, keyring, trusted=trusted)
        self._client = BlockClient(keyring, limits=limits)
        self._copies: dict[Address, Handle] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._server.serve, args=(self._over.is_set,), name=f"serve {owner}", daemon=True
        )
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    @property
    def used(self) -> int:
        """Bytes put, and bytes fetched or on their way here."""
        return self._segment.used

    def put(self, batch: Batch, stream: str = "") -> Address | None:
        handle = self._segment.try_write(batch, stream)
        if handle is None:
            return None
        self._blocks.note(handle)
        return Address(
            kind=self.kind,
            owner=self._owner,
            endpoint=self._server.endpoint,
            block=handle.to_plain(),
        )

    def get(self, address: Address) -> Batch:
        """Raises NoRoom, PeerLost, FetchRefused or BlockCorrupt; see `Limits` for when."""
        copy = self._copies.get(address)
        if copy is None:
            copy = self._copies[address] = self._fetch(address)
        return self._reader.open(copy)

    def done(self, address: Address) -> None:
        copy = self._copies.pop(address, None)
        if copy is not None:
            self._segment.free(copy)

    def free(self, address: Address) -> None:
        handle = Handle.from_plain(address.block)
        self._segment.free(handle)
        self._blocks.forget(handle)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()
        self._server.close()
        self._segment.close()

    def _fetch(self, address: Address) -> Handle:
        handle = Handle.from_plain(address.block)
        reserved = self._segment.try_reserve(handle.nbytes, f"from {address.owner}", handle.rows)
        if reserved is None:
            raise NoRoom(f"{handle.nbytes} bytes of '{address.owner}' do not fit now")
        source = Source(endpoint=address.endpoint, server=address.owner, block=address.block)
        try:
            self._client.fetch(source, reserved.memory)
        except BaseException:
            self._segment.abandon(reserved)
            raise
        return self._segment.fill(reserved, handle.rows, handle.layout)
