"""A worker's side of the pool: writes wait for room, reads are zero-copy views.

Law 4: a full segment makes its producer wait; nothing is dropped for space. While it waits, a
worker goes on handling messages, `Free` among them. What an item reads stays where it is until the
item has ended and no view of it is left (`leases.py`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from flowgraph.ir.plan import Plan
from flowgraph.runtime.batch import ALIGN, Batch, aligned
from flowgraph.runtime.column import Column
from flowgraph.runtime.item import members
from flowgraph.runtime.loose import Made
from flowgraph.runtime.messages import Free, PlainHandle
from flowgraph.runtime.nodes import nodes_of
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.receiving import Limits
from flowgraph.runtime.transport.remote import Nodes, Remote
from flowgraph.runtime.worker.leases import Leases
from flowgraph.runtime.worker.spec import WorkerSpec

Wait = Callable[[str, int], None]
"""Handles messages until something was freed; called with the stream and bytes of a block for which
there is no room."""


class Store:
    """The worker's own segment and what it has mapped of others'. fd, pid: see `Segment`.

    spill: on disk, for what finds no room. What is written there waits longer than all that is in
    memory, where records are taken in the order they were made; it is read from where it is.
    remote: copies of other nodes' blocks.
    """

    def __init__(
        self,
        owner: str,
        budget: int,
        *,
        fd: int = -1,
        pid: int = 0,
        spill: Segment | None = None,
        remote: Remote | None = None,
    ) -> None:
        self._owner = owner
        self._segment = Segment(owner, budget, fd=fd, pid=pid)
        self._spill = spill
        self.remote = remote
        self._apart: Segment | None = None
        self._reader = Reader()
        self._mine: dict[tuple[int, int], tuple[Segment, Handle]] = {}
        self.leases = Leases(self._reader.views)
        self.freed = 0  # `Free` messages that were taken

    def write(self, batch: Made, stream: str, wait: Wait) -> PlainHandle:
        """The block's handle, once there was room for it."""
        spill = self._spill
        if spill is None or not spill.holds(batch.layout()[1]):
            return self._write((self._segment,), batch, stream, wait)
        return self._write((self._segment, spill), batch, stream, wait)

    def write_apart(self, batch: Batch, stream: str, wait: Wait) -> PlainHandle:
        """Into memory of its own that holds one such batch: weights stay while engines may ask.

        All batches written so are of one size. In the pool they would take the room of records.
        """
        if self._apart is None:
            self._apart = Segment(self._owner, aligned(ALIGN + batch.layout()[1]))
        return self._write((self._apart,), batch, stream, wait)

    def _write(
        self, segments: Sequence[Segment], batch: Made, stream: str, wait: Wait
    ) -> PlainHandle:
        """Into the first that has room."""
        while True:
            for segment in segments:
                handle = segment.try_write(batch, stream)
                if handle is not None:
                    self._mine[(handle.offset, handle.generation)] = (segment, handle)
                    return handle.to_plain()
            wait(stream, batch.layout()[1])

    def free(self, message: Free) -> None:
        self.freed += 1
        for block in message.blocks:
            segment, handle = self._mine.pop(block)
            segment.free(handle)

    def open(self, handle: PlainHandle) -> Batch:
        """A block of this node as views of its memory, one of another node as a copy."""
        found = Handle.from_plain(handle)
        if self.remote is not None and self.remote.elsewhere(found):
            return self.remote.open(found)
        return self._reader.open(found)

    def open_unit(self, handles: Sequence[PlainHandle], samples: Sequence[int]) -> Batch:
        """A unit's rows; blocks of a filter's task may hold other samples' rows too."""
        return members(Batch.concat(self.open(handle) for handle in handles), samples)


def store_of(spec: WorkerSpec, plan: Plan) -> Store:
    """The worker's store, with the memory that was made for it."""
    spill = remote = None
    if spec.spill_fd >= 0:
        spill = Segment(
            spec.token, spec.spill_bytes, fd=spec.spill_fd, pid=spec.pool_pid, on_disk=True
        )
    if spec.porters:
        nodes = Nodes(nodes_of(plan), spec.porters)
        keys = Keyring.read(Path(spec.block_keys))
        limits = Limits(quiet_s=min(2.0, spec.fetch_s / 4), patience_s=spec.fetch_s)
        remote = Remote(spec.node, nodes, keys, plan.pool_bytes, limits)
    return Store(
        spec.token, spec.pool_bytes, fd=spec.pool_fd, pid=spec.pool_pid, spill=spill, remote=remote
    )


def flat_batch(flat: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Batch:
    """A flat buffer of weights as a batch of one row."""
    offsets = np.array([0, flat.shape[0]], np.int64)
    return Batch(1, {"weights": Column("uint8", flat, (offsets,))})
