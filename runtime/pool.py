"""The pool: shared memory that batches live in, written by one process and read by any.

Guarantees: a reader sees the writer's bytes without a copy; a segment never takes more memory than
its budget; the kernel frees it with its last holder, so nothing outlives the processes, however
they die; a handle whose block was freed is refused (`StaleHandle`), never read as something else.
Assumes: readers belong to the same user and machine; the owner frees a block only when nobody
reads it any more (the orchestrator counts leases). One writer a segment, no locks.

A segment is a sealed `memfd`; readers map it through `/proc/<pid>/fd/<fd>`. Every block starts with
one 64-byte header: magic, generation, bytes of payload. Freeing zeroes the generation.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
from dataclasses import dataclass

from flowgraph.runtime.arena import Arena
from flowgraph.runtime.batch import ALIGN, Batch, Layout
from flowgraph.runtime.failures import BlockTooLarge, StaleHandle
from flowgraph.runtime.handle import Handle, named, write_header
from flowgraph.runtime.loose import LooseBatch
from flowgraph.runtime.reader import Reader
from flowgraph.runtime.slots import Slots

__all__ = ["Handle", "Reader", "Reservation", "Segment", "new_memory", "new_spill"]

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STEP = 1 << 22  # bytes of memory asked for at once: few system calls, little to spare


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room in a segment for a block that is not there yet: its bytes go into `memory`."""

    offset: int
    memory: memoryview


def new_memory(owner: str, budget: int) -> int:
    """The descriptor of a segment's memory, sealed in size; nothing is taken until it is touched.

    Raises OSError when the machine gives none.
    """
    fd = os.memfd_create(f"flowgraph:{owner}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, budget // ALIGN * ALIGN)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def new_spill(folder: str, budget: int) -> int:
    """The descriptor of a segment on disk: a file without a name, gone with its last holder.

    Nothing is taken until it is written to. Raises OSError when the folder cannot be written.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        fd = os.open(folder, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR):
            raise
        path = f"{folder}/.flowgraph-spill-{secrets.token_hex(8)}"  # some network file systems
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)
    os.ftruncate(fd, budget // ALIGN * ALIGN)
    return fd


class Segment:
    """One process's part of the pool, of at most `budget` bytes (headers included).

    fd, pid: of memory that `new_memory` made in another process, which keeps it when the writer is
    lost; readers open it there. Without them the memory is the writer's own and ends with it.
    on_disk: fd is of `new_spill`; its blocks are memory only while the system has some to spare.
    Memory is taken from the machine as blocks need it, in order, and then kept for reuse.
    Raises OSError when the machine has no memory left (instead of a SIGBUS later).
    """

    def __init__(
        self, owner: str, budget: int, *, fd: int = -1, pid: int = 0, on_disk: bool = False
    ) -> None:
        size = budget // ALIGN * ALIGN
        self.owner = owner
        self.budget = budget
        self._arena = Arena(size)
        self._fd = fd if fd >= 0 else new_memory(owner, budget)
        self._pid = pid or os.getpid()
        self._on_disk = on_disk
        self._map = mmap.mmap(self._fd, size)
        self._memory = memoryview(self._map)
        self._backed = 0
        self._slots = Slots()

    def try_write(self, batch: Batch | LooseBatch, stream: str = "") -> Handle | None:
        """Copies the records in; None when there is no room now: wait for a `free`, then try again.

        Raises BlockTooLarge when they could not fit an empty segment.
        """
        layout, nbytes = batch.layout()
        reserved = self.try_reserve(nbytes, stream, batch.rows)
        if reserved is None:
            return None
        try:
            batch.write_into(reserved.memory)
        except BaseException:
            self.abandon(reserved)
            raise
        return self.fill(reserved, batch.rows, layout)

    def try_reserve(self, nbytes: int, stream: str = "", rows: int = 0) -> Reservation | None:
        """Room for a block whose bytes are still to come, counted as used from now on.

        Ends with `fill` or `abandon`. None when there is no room now, be it that the disk is full;
        raises BlockTooLarge when it could not fit an empty segment.
        """
        if not self.holds(nbytes):
            raise BlockTooLarge(
                f"stream '{stream}': a block of {rows} records takes {nbytes + ALIGN} bytes, "
                f"the pool segment of '{self.owner}' has {self._arena.size}",
                hint="fewer samples a unit, or a larger pool_bytes",
            )
        offset = self._arena.take(ALIGN + nbytes)
        if offset is None:
            return None
        try:
            self._back(offset + ALIGN + nbytes)
        except BaseException as error:
            self._arena.give(offset)
            if self._on_disk and isinstance(error, OSError) and error.errno in _DISK_FULL:
                return None
            raise
        self._slots.reserve(offset)
        start = offset + ALIGN
        return Reservation(offset, self._memory[start : start + nbytes])

    def holds(self, nbytes: int) -> bool:
        """Whether a block of so many bytes fits when the segment is empty."""
        return ALIGN + nbytes <= self._arena.size

    def fill(self, reserved: Reservation, rows: int, layout: Layout) -> Handle:
        """The reserved bytes are a batch now, which anybody may read by the handle."""
        offset, nbytes = reserved.offset, reserved.memory.nbytes
        generation = self._slots.fill(offset)
        write_header(self._memory, offset, generation, nbytes)
        self._slots.publish(offset, generation)
        if self._on_disk:
            self._let_go(offset, ALIGN + nbytes)
        return Handle(
            owner=self.owner,
            pid=self._pid,
            fd=self._fd,
            offset=offset,
            nbytes=nbytes,
            generation=generation,
            rows=rows,
            layout=layout,
        )

    def abandon(self, reserved: Reservation) -> None:
        """Gives the room back: the bytes will not come."""
        self._slots.abandon(reserved.offset)
        self._arena.give(reserved.offset)

    def free(self, handle: Handle) -> None:
        """Ends the block. Raises StaleHandle when it was freed already, or is not ours."""
        mine = handle.pid == self._pid and handle.fd == self._fd
        if not mine or self._slots.generation(handle.offset) != handle.generation:
            raise StaleHandle(f"{named(handle)}: freed twice, or not a block of '{self.owner}'")
        self._slots.free(handle.offset)
        write_header(self._memory, handle.offset, 0, 0)
        self._arena.give(handle.offset)

    @property
    def used(self) -> int:
        """Bytes of live blocks, headers and alignment included."""
        return self._arena.used

    @property
    def high_water(self) -> int:
        """The most bytes, from the segment's start, that blocks have ever reached."""
        return self._arena.high_water

    @property
    def blocks(self) -> int:
        """Live blocks."""
        return len(self._slots)

    def close(self) -> None:
        """Lets go of the memory; readers that mapped it keep theirs."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._slots.clear()

    def _let_go(self, start: int, nbytes: int) -> None:
        """The bytes are the file's: to the disk with them, and out of our memory."""
        start, end = start // mmap.PAGESIZE * mmap.PAGESIZE, start + nbytes
        self._map.madvise(mmap.MADV_DONTNEED, start, end - start)
        os.posix_fadvise(self._fd, start, end - start, os.POSIX_FADV_DONTNEED)

    def _back(self, end: int) -> None:
        """Memory behind all bytes below `end`, in steps: the first touch is what is slow."""
        if end > self._backed:
            until = min(-(-end // _STEP) * _STEP, self._arena.size)
            os.posix_fallocate(self._fd, self._backed, until - self._backed)
            self._backed = until
