"""A worker's side of the pool: writes wait for room, reads are zero-copy views.

Law 4: a full segment makes its producer wait; nothing is dropped for space. While it waits, a
worker goes on handling messages, `Free` among them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column
from flowgraph.runtime.item import members
from flowgraph.runtime.messages import Free, PlainHandle
from flowgraph.runtime.pool import Handle, Reader, Segment

Wait = Callable[[], None]
"""Handles messages until something changed; called while there is no room."""


class Store:
    """The worker's own segment and what it has mapped of others'."""

    def __init__(self, owner: str, budget: int) -> None:
        self._segment = Segment(owner, budget)
        self._reader = Reader()
        self._mine: dict[tuple[int, int], Handle] = {}

    def write(self, batch: Batch, stream: str, wait: Wait) -> PlainHandle:
        """The block's handle, once there was room for it."""
        while (handle := self._segment.try_write(batch, stream)) is None:
            wait()
        self._mine[(handle.offset, handle.generation)] = handle
        return handle.to_plain()

    def free(self, message: Free) -> None:
        for block in message.blocks:
            self._segment.free(self._mine.pop(block))

    def open(self, handle: PlainHandle) -> Batch:
        return self._reader.open(Handle.from_plain(handle))

    def open_unit(self, handles: Sequence[PlainHandle], samples: Sequence[int]) -> Batch:
        """A unit's rows; blocks of a filter's task may hold other samples' rows too."""
        return members(Batch.concat(self.open(handle) for handle in handles), samples)


def flat_batch(flat: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> Batch:
    """A flat buffer of weights as a batch of one row."""
    offsets = np.array([0, flat.shape[0]], np.int64)
    return Batch(1, {"weights": Column("uint8", flat, (offsets,))})
