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

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowgraph.runtime.arena import Arena
from flowgraph.runtime.batch import ALIGN, Batch, Layout
from flowgraph.runtime.failures import BlockTooLarge, OwnerGone, StaleHandle

__all__ = ["Handle", "Reader", "Reservation", "Segment"]

_HEADER = struct.Struct("<QQQ")  # magic, generation, bytes of payload
_MAGIC = 0x31_4B_4C_42_47_4C_46_00  # "\0FLGBLK1", little-endian
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_STEP = 1 << 22  # bytes of memory asked for at once: few system calls, little to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """Where a batch lives: plain data that any process of this machine may open.

    owner: the worker's name. pid, fd: its process and the segment's descriptor there. offset,
    nbytes: the block within the segment. generation: never used twice. rows, layout: the batch's.
    """

    owner: str
    pid: int
    fd: int
    offset: int
    nbytes: int
    generation: int
    rows: int
    layout: Layout

    def to_plain(self) -> tuple[Any, ...]:
        """Ints, strings and tuples only, for msgpack."""
        return (
            self.owner,
            self.pid,
            self.fd,
            self.offset,
            self.nbytes,
            self.generation,
            self.rows,
            self.layout,
        )

    @classmethod
    def from_plain(cls, plain: Sequence[Any]) -> Handle:
        """Raises ValueError when it is not what `to_plain` gave (lists in place of tuples pass)."""
        if len(plain) != 8 or not isinstance(plain[0], str):
            raise ValueError(f"not a pool handle: {len(plain)} fields")
        owner, *numbers, layout = plain
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError(f"not a pool handle: {numbers}")
        pid, fd, offset, nbytes, generation, rows = numbers
        return cls(
            owner=owner,
            pid=pid,
            fd=fd,
            offset=offset,
            nbytes=nbytes,
            generation=generation,
            rows=rows,
            layout=_tuples(layout),
        )


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room in a segment for a block that is not there yet: its bytes go into `memory`."""

    offset: int
    memory: memoryview


class Segment:
    """One process's part of the pool, of at most `budget` bytes (headers included).

    Memory is taken from the machine as blocks need it, in order, and then kept for reuse.
    Raises OSError when the machine has no memory left (instead of a SIGBUS later).
    """

    def __init__(self, owner: str, budget: int) -> None:
        size = budget // ALIGN * ALIGN
        self.owner = owner
        self.budget = budget
        self._arena = Arena(size)
        self._fd = os.memfd_create(f"flowgraph:{owner}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, size)  # sparse: costs nothing until touched
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        self._memory = memoryview(mmap.mmap(self._fd, size))
        self._backed = 0
        # another segment of a process with our pid and fd must not repeat our generations
        self._generation = secrets.randbits(30) << 32
        self._live: dict[int, int] = {}  # offset -> generation

    def try_write(self, batch: Batch, stream: str = "") -> Handle | None:
        """Copies the batch in; None when there is no room now: wait for a `free`, then try again.

        Raises BlockTooLarge when it could not fit an empty segment.
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

        Ends with `fill` or `abandon`. None when there is no room now; raises BlockTooLarge when
        it could not fit an empty segment.
        """
        if ALIGN + nbytes > self._arena.size:
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
        except BaseException:
            self._arena.give(offset)
            raise
        start = offset + ALIGN
        return Reservation(offset, self._memory[start : start + nbytes])

    def fill(self, reserved: Reservation, rows: int, layout: Layout) -> Handle:
        """The reserved bytes are a batch now, which anybody may read by the handle."""
        self._generation += 1
        offset, nbytes = reserved.offset, reserved.memory.nbytes
        _HEADER.pack_into(self._memory, offset, _MAGIC, self._generation, nbytes)
        self._live[offset] = self._generation
        return Handle(
            owner=self.owner,
            pid=os.getpid(),
            fd=self._fd,
            offset=offset,
            nbytes=nbytes,
            generation=self._generation,
            rows=rows,
            layout=layout,
        )

    def abandon(self, reserved: Reservation) -> None:
        """Gives the room back: the bytes will not come."""
        self._arena.give(reserved.offset)

    def free(self, handle: Handle) -> None:
        """Ends the block. Raises StaleHandle when it was freed already, or is not ours."""
        mine = handle.pid == os.getpid() and handle.fd == self._fd
        if not mine or self._live.get(handle.offset) != handle.generation:
            raise StaleHandle(f"{_named(handle)}: freed twice, or not a block of '{self.owner}'")
        del self._live[handle.offset]
        _HEADER.pack_into(self._memory, handle.offset, _MAGIC, 0, 0)
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
        return len(self._live)

    def close(self) -> None:
        """Lets go of the memory; readers that mapped it keep theirs."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._live.clear()

    def _back(self, end: int) -> None:
        """Memory behind all bytes below `end`, in steps: the first touch is what is slow."""
        if end > self._backed:
            until = min(-(-end // _STEP) * _STEP, self._arena.size)
            os.posix_fallocate(self._fd, self._backed, until - self._backed)
            self._backed = until


class Reader:
    """Opens handles of any process of this machine; maps each segment once."""

    def __init__(self) -> None:
        self._maps: dict[tuple[int, int], memoryview] = {}

    def open(self, handle: Handle) -> Batch:
        """The batch, as read-only views of the owner's memory.

        The views stay readable for as long as they live, also when the owner is killed. Raises
        StaleHandle for a block freed meanwhile, OwnerGone when there is nothing to map.
        """
        return Batch.read(handle.layout, self.memory(handle))

    def memory(self, handle: Handle) -> memoryview:
        """The block's bytes, read-only; raises what `open` does."""
        key = (handle.pid, handle.fd)
        if key in self._maps and not _live(self._maps[key], handle):
            del self._maps[key]  # perhaps another process by now that got the same pid
        if key not in self._maps:
            self._maps[key] = _map(handle)
        memory = self._maps[key]
        if not _live(memory, handle):
            raise StaleHandle(f"{_named(handle)}: the block was freed")
        start = handle.offset + ALIGN
        return memory[start : start + handle.nbytes]

    def check(self, handle: Handle) -> None:
        """Raises StaleHandle when the block was freed since it was opened."""
        memory = self._maps.get((handle.pid, handle.fd))
        if memory is None or not _live(memory, handle):
            raise StaleHandle(f"{_named(handle)}: the block was freed")

    def forget(self, pid: int) -> None:
        """Drops the mappings of a process that is gone; views already handed out stay."""
        for key in [key for key in self._maps if key[0] == pid]:
            del self._maps[key]


def _map(handle: Handle) -> memoryview:
    path = f"/proc/{handle.pid}/fd/{handle.fd}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OwnerGone(f"{_named(handle)}: cannot open {path}: {error.strerror}") from error
    try:
        if not os.readlink(path).startswith("/memfd:flowgraph:"):
            raise OwnerGone(f"{_named(handle)}: {path} is not a pool segment (its owner is gone)")
        return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    except FileNotFoundError as error:
        raise OwnerGone(f"{_named(handle)}: its owner ended just now") from error
    finally:
        os.close(fd)  # the mapping holds the memory by itself


def _live(memory: memoryview, handle: Handle) -> bool:
    if handle.offset % ALIGN or handle.offset + ALIGN + handle.nbytes > memory.nbytes:
        return False
    magic, generation, nbytes = _HEADER.unpack_from(memory, handle.offset)
    return bool((magic, generation, nbytes) == (_MAGIC, handle.generation, handle.nbytes))


def _named(handle: Handle) -> str:
    return (
        f"pool block of '{handle.owner}' (pid {handle.pid}) at {handle.offset}, "
        f"generation {handle.generation}"
    )


def _tuples(plain: Any) -> Any:
    return tuple(map(_tuples, plain)) if isinstance(plain, list | tuple) else plain
