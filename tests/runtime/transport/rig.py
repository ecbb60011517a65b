"""A server and a client with real sockets, turned by hand in one thread."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.chunks import CHUNK
from flowgraph.runtime.transport.client import BlockClient, Source
from flowgraph.runtime.transport.keys import Keyring, new_keyrings
from flowgraph.runtime.transport.receiving import Limits
from flowgraph.runtime.transport.server import BlockServer

HURRY = Limits(quiet_s=0.2, patience_s=1.0)
LOOPBACK = "tcp://127.0.0.1:*"


def bytes_batch(nbytes: int, seed: int = 0) -> Batch:
    """One row of random bytes."""
    values = np.random.default_rng(seed).integers(0, 256, (1, nbytes), np.uint8)
    return Batch(1, {"x": Column("uint8", values)})


def written(segment: Segment, batch: Batch) -> Handle:
    handle = segment.try_write(batch)
    assert handle is not None
    return handle


def source_of(server: BlockServer, handle: Handle) -> Source:
    return Source(endpoint=server.endpoint, server="owner", block=handle.to_plain())


def turned(client: BlockClient, server: BlockServer, number: int) -> RunFailed | None:
    """Turn both until the fetch ends; its error."""
    while True:
        server.turn(0)
        for ended in client.turn(1):
            if ended.fetch == number:
                return ended.error


class Rig:
    """way: `ipc`, `tcp` (CURVE), or `trusted` (tcp, records in the clear)."""

    def __init__(self, way: str, folder: Path, *, window: int = 4, budget_chunks: int = 8) -> None:
        self.rings: dict[str, Keyring] = new_keyrings(["owner", "reader"])
        self.segment = Segment("owner", 1 << 27)
        self.blocks = PoolBlocks(Reader())
        tcp = way != "ipc"
        self.server = BlockServer(
            self.blocks,
            LOOPBACK if tcp else f"ipc://{folder}/owner",
            self.rings["owner"] if tcp else None,
            trusted=way == "trusted",
            budget_bytes=budget_chunks * CHUNK,
            idle_s=1.0,
        )
        self.client = BlockClient(
            self.rings["reader"] if tcp else None,
            window=window,
            budget_bytes=budget_chunks * CHUNK,
            limits=HURRY,
        )

    def fetched(self, batch: Batch) -> tuple[Batch | None, RunFailed | None]:
        """The batch as it arrives at the reader, or the error."""
        handle = written(self.segment, batch)
        into = memoryview(bytearray(handle.nbytes))
        number = self.client.start(source_of(self.server, handle), into)
        error = turned(self.client, self.server, number)
        return (Batch.read(handle.layout, into), None) if error is None else (None, error)


@contextmanager
def rig(way: str, folder: Path, *, window: int = 4, budget_chunks: int = 8) -> Iterator[Rig]:
    made = Rig(way, folder, window=window, budget_chunks=budget_chunks)
    try:
        yield made
    finally:
        made.client.close()
        made.server.close()
        made.segment.close()


class Serving:
    """A server of any process's blocks over CURVE, on a thread of its own until it is stopped."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rings = new_keyrings(names)
        self.server = BlockServer(PoolBlocks(Reader()), LOOPBACK, self.rings[names[0]])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self.server.serve(self._over.is_set, every_ms=10)
        self.server.close()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def serving(names: Sequence[str]) -> Iterator[Serving]:
    """names: the server's own first."""
    found = Serving(names)
    try:
        yield found
    finally:
        found.stop()
