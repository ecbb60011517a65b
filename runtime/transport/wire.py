"""The messages of a fetch, and their wire form: "R" fetches a block, "S" has it.

`[VERSION, name, field, ...]` in msgpack, as the orchestrator's messages are; a `Chunk` is followed
by one more frame, its bytes. All are idempotent: any may be lost, late or doubled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgpack

from flowgraph.runtime.messages import PlainHandle
from flowgraph.runtime.wire_types import BadMessage, field_checks, unpack

VERSION = 1
MAX_BYTES = 1 << 24
"""The longest control message: the digests of a block of two terabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """R → S: send chunks `start` up to (not including) `upto`. Answered by Opened or Refused.

    fetch: R's own number. attempt: rises each time R asks again; the newest one counts.
    """

    fetch: int
    attempt: int
    block: PlainHandle
    start: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """S → R: what the chunks must be. bulk: where to collect them with `token`; empty: here."""

    fetch: int
    attempt: int
    chunk_bytes: int
    digests: bytes
    bulk: str
    token: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """S → R: there is no such block, and why."""

    fetch: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """S → R: a chunk's bytes follow in the next frame."""

    fetch: int
    attempt: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """R → S: chunks below `received` are verified; those below `upto` may be sent."""

    fetch: int
    attempt: int
    received: int
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """R → S: no more of this fetch is wanted: it is complete, or given up."""

    fetch: int


FetchMessage = Open | Opened | Refused | Chunk | Credit | Close

MESSAGES: Mapping[str, type[Any]] = {
    cls.__name__: cls for cls in (Open, Opened, Refused, Chunk, Credit, Close)
}
_FIELDS = {name: tuple(f.name for f in fields(cls)) for name, cls in MESSAGES.items()}
_CHECKS = {name: tuple(field_checks(cls).values()) for name, cls in MESSAGES.items()}


def encode(message: FetchMessage) -> bytes:
    """The message's wire form."""
    name = type(message).__name__
    packed: bytes = msgpack.packb([VERSION, name, *(getattr(message, f) for f in _FIELDS[name])])
    return packed


def decode(data: bytes | memoryview) -> FetchMessage:
    """Inverse of `encode`. Raises BadMessage, and nothing else; numbers are never negative."""
    parts = unpack(data, MAX_BYTES)
    if type(parts) is not tuple or len(parts) < 2 or parts[0] != VERSION:
        raise BadMessage("a fetch message of unknown version")
    name, values = parts[1], parts[2:]
    cls = MESSAGES.get(name) if type(name) is str else None
    if cls is None or len(values) != len(_FIELDS[name]):
        raise BadMessage("a fetch message of unknown type or number of fields")
    for field, value, check in zip(_FIELDS[name], values, _CHECKS[name], strict=True):
        if not check(value) or (type(value) is int and value < 0):
            raise BadMessage(f"a {name} whose '{field}' has a wrong type or range")
    message: FetchMessage = cls(**dict(zip(_FIELDS[name], values, strict=True)))
    return message
