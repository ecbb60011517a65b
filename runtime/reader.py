"""Reading blocks of any process of this machine, without a copy."""

import mmap
import os
import stat
import weakref

import numpy as np
from numpy.typing import NDArray

from flowgraph.runtime.batch import ALIGN, Batch
from flowgraph.runtime.failures import OwnerGone, StaleHandle
from flowgraph.runtime.handle import Handle, is_live, named
from flowgraph.runtime.incarnation import process_of

Bytes = NDArray[np.uint8]

Block = tuple[str, int, int]
"""Which process wrote it, where, and which use of the place it is."""

KEEP_COPIES = (
    "what a function is handed is a view of shared memory: keep copies, "
    "for instance numpy.array(x) or tensor.clone()"
)
"""What to do about records that are kept after their item's end."""

MOST_DEAD = 256
"""Blocks that nothing looks at any more, and are remembered all the same."""


class Reader:
    """Opens handles of any process of this machine; maps each segment once.

    All views of a block derive from one array, which lives as long as the last of them: so it can
    be told whether somebody still looks at the block, be it an array, a slice or a tensor of one.

    Of one worker, only the segments of the process that was read last stay mapped: what a lost
    process left must not be held for as long as its successor lives.
    """

    def __init__(self) -> None:
        self._maps: dict[tuple[int, int], memoryview] = {}
        self._of: dict[str, tuple[int, set[tuple[int, int]]]] = {}  # by worker: process, segments
        self._viewed: dict[Block, weakref.ref[Bytes]] = {}  # dead ones are swept out now and then
        self._sweep_at = MOST_DEAD

    def open(self, handle: Handle) -> Batch:
        """The batch, as read-only views of the owner's memory.

        The views stay readable for as long as they live, also when the owner is killed. Raises
        StaleHandle for a block freed meanwhile, OwnerGone when there is nothing to map.
        """
        memory = self._segment(handle)
        block = (handle.owner, handle.offset, handle.generation)
        found = self._viewed.get(block)
        base = None if found is None else found()
        if base is None:
            base = np.frombuffer(memory, np.uint8, handle.nbytes, handle.offset + ALIGN)
            self._viewed[block] = weakref.ref(base)
            if len(self._viewed) > self._sweep_at:
                self._sweep()
        return Batch.read(handle.layout, base.data)

    def views(self, block: Block) -> bool:
        """Whether a view of the block is left that `open` gave."""
        found = self._viewed.get(block)
        return found is not None and found() is not None

    def _sweep(self) -> None:
        self._viewed = {block: ref for block, ref in self._viewed.items() if ref() is not None}
        self._sweep_at = len(self._viewed) * 2 + MOST_DEAD

    def memory(self, handle: Handle) -> memoryview:
        """The block's bytes, read-only, without account of who looks; raises what `open` does."""
        start = handle.offset + ALIGN
        return self._segment(handle)[start : start + handle.nbytes]

    def _segment(self, handle: Handle) -> memoryview:
        """The memory that the block is in, in which it lives."""
        key = (handle.pid, handle.fd)
        if key in self._maps and not is_live(self._maps[key], handle):
            del self._maps[key]  # perhaps another process by now that got the same pid
        if key not in self._maps:
            self._maps[key] = _map(handle)
            self._keep(handle.owner, key)
        memory = self._maps[key]
        if not is_live(memory, handle):
            raise StaleHandle(f"{named(handle)}: the block was freed")
        return memory

    def _keep(self, owner: str, key: tuple[int, int]) -> None:
        worker, incarnation = process_of(owner)
        last, keys = self._of.get(worker, (incarnation, set()))
        if last != incarnation:
            for old in keys - {key}:
                self._maps.pop(old, None)
            keys = set()
        self._of[worker] = (incarnation, keys | {key})

    def check(self, handle: Handle) -> None:
        """Raises StaleHandle when the block was freed since it was opened."""
        memory = self._maps.get((handle.pid, handle.fd))
        if memory is None or not is_live(memory, handle):
            raise StaleHandle(f"{named(handle)}: the block was freed")

    def forget(self, pid: int) -> None:
        """Drops the mappings of a process that is gone; views already handed out stay."""
        for key in [key for key in self._maps if key[0] == pid]:
            del self._maps[key]


def _map(handle: Handle) -> memoryview:
    path = f"/proc/{handle.pid}/fd/{handle.fd}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OwnerGone(f"{named(handle)}: cannot open {path}: {error.strerror}") from error
    try:
        link = os.readlink(path)
        spilled = link.endswith(" (deleted)") and stat.S_ISREG(os.fstat(fd).st_mode)
        if not (link.startswith("/memfd:flowgraph:") or (spilled and "/memfd:" not in link)):
            raise OwnerGone(f"{named(handle)}: {path} is not a pool segment (its owner is gone)")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    except FileNotFoundError as error:
        raise OwnerGone(f"{named(handle)}: its owner ended just now") from error
    finally:
        os.close(fd)  # the mapping holds the memory by itself
