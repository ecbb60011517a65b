"""Where a batch lives, as plain data, and the header that each block begins with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flowgraph.runtime.batch import ALIGN, Layout

_HEADER = struct.Struct("<QQQ")  # magic, generation, bytes of payload
_MAGIC = 0x31_4B_4C_42_47_4C_46_00  # "\0FLGBLK1", little-endian


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


def write_header(memory: memoryview, offset: int, generation: int, nbytes: int) -> None:
    """Begin a block; generation 0 ends one."""
    _HEADER.pack_into(memory, offset, _MAGIC, generation, nbytes)


def is_live(memory: memoryview, handle: Handle) -> bool:
    """Whether the block that the handle names is in this memory, and not freed."""
    if handle.offset % ALIGN or handle.offset + ALIGN + handle.nbytes > memory.nbytes:
        return False
    magic, generation, nbytes = _HEADER.unpack_from(memory, handle.offset)
    return bool((magic, generation, nbytes) == (_MAGIC, handle.generation, handle.nbytes))


def named(handle: Handle) -> str:
    """For messages."""
    return (
        f"pool block of '{handle.owner}' (pid {handle.pid}) at {handle.offset}, "
        f"generation {handle.generation}"
    )


def _tuples(plain: Any) -> Any:
    return tuple(map(_tuples, plain)) if isinstance(plain, list | tuple) else plain
