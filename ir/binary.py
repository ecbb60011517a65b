"""The binary form of a plan: msgpack, with a schema version and a digest of the content.

    MAGIC | version: uint16, little-endian | sha256 of body: 32 bytes | body: msgpack

The body is the plan as plain data (see `plain.py`), dicts in sorted order, so that equal plans are
equal bytes. Reading runs nothing of the user's and refuses what it does not know.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgpack

from flowgraph.ir.data import PlainError
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plain import from_plain, to_plain
from flowgraph.ir.plan import Plan

MAGIC = b"\x93fgplan\n"
SCHEMA = 1
"""Moves on with every change of a dataclass of the dialects that old readers would misread."""

_HEADER = len(MAGIC) + 2 + 32


def encode(plan: Plan) -> bytes:
    """Raises ConfigurationError when the plan holds a number that msgpack cannot."""
    body = _pack(to_plain(plan))
    return MAGIC + SCHEMA.to_bytes(2, "little") + hashlib.sha256(body).digest() + body


def decode(data: bytes, name: str = "<plan>") -> Plan:
    """The inverse of `encode`. `name`: the file, for messages.

    Raises ConfigurationError for anything that is not an undamaged plan of a known version. The
    result has the right shape but is not verified: see `flowgraph.ir.verify`.
    """
    if not data.startswith(MAGIC) or len(data) < _HEADER:
        what = "is cut off" if MAGIC.startswith(data[: len(MAGIC)]) and data else "is not a plan"
        raise _refuse(name, what if data else "is empty")
    start = len(MAGIC)
    version = int.from_bytes(data[start : start + 2], "little")
    if version != SCHEMA:
        raise _refuse(
            name, f"has plan schema {version}; this version of flowgraph reads schema {SCHEMA}"
        )
    body = data[_HEADER:]
    if hashlib.sha256(body).digest() != data[start + 2 : _HEADER]:
        raise _refuse(name, "is damaged: its content does not have the digest it states")
    try:
        return from_plain(Plan, _unpack(body))
    except PlainError as error:
        raise _refuse(name, f"is not a legal plan: {error}") from None


def plan_hash(plan: Plan) -> str:
    """Identity of what a plan does, 32 hex digits; the same wherever the files lie.

    Left out: the root folder, the cluster file's name (the cluster is in the plan), and the lines
    where things were declared.
    """
    graph = replace(plan.graph, root="", cluster="")
    body = _pack(_without_locations(to_plain(replace(plan, graph=graph))))
    return hashlib.sha256(body).hexdigest()[:32]


def _pack(plain: dict[str, Any]) -> bytes:
    try:
        packed: bytes = msgpack.packb(_sorted(plain), use_bin_type=True)
    except (OverflowError, ValueError, TypeError) as error:
        raise ConfigurationError(f"the plan cannot be written: {error}") from error
    return packed


def _unpack(body: bytes) -> Any:
    try:
        return msgpack.unpackb(body, raw=False, strict_map_key=True, use_list=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise PlainError((), f"its content is not msgpack ({error})") from None


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value


_PLACED = ("modules", "agents", "stages", "streams")


def _without_locations(plain: dict[str, Any]) -> dict[str, Any]:
    graph = dict(plain["graph"])
    for part in _PLACED:
        things = graph.get(part, ())
        graph[part] = [{k: v for k, v in thing.items() if k != "at"} for thing in things]
    return {**plain, "graph": graph}


def _refuse(name: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name} {what}", hint="make the plan again: flowgraph compile GRAPH.py -o PLAN"
    )
