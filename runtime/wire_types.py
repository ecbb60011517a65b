"""Checks of decoded wire data: what a peer sent is a tree of the sizes and types it must be.

Guarantees: bytes of any content cost time and memory in proportion to their length, and are either
the declared types or a `BadMessage`. Nothing here runs what a peer sent.
"""

import struct
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgpack

from flowgraph.ir.errors import InternalError

MAX_DEPTH = 16
"""Containers within containers; a message with a block's layout has seven."""

CHEAP_BYTES = 1 << 24
"""Memory that lying length headers may make msgpack ask for before the bytes are walked first."""

SMALL = 1 << 10
"""So few bytes cannot claim more than CHEAP_BYTES, whatever they are."""

Check = Callable[[Any], bool]


class BadMessage(InternalError):
    """Bytes from a peer that are no message of ours; counted and refused, never fatal to a run.

    You get it for a wrong length, depth, version, type or field; not for a well-formed message that
    comes at the wrong time. A worker that gets it from its orchestrator has met our bug.
    """


def unpack(data: bytes | memoryview, max_bytes: int) -> Any:
    """The msgpack tree in `data`, arrays as tuples. Raises BadMessage."""
    if len(data) > max_bytes:
        raise BadMessage(f"a message of {len(data)} bytes; at most {max_bytes} are read")
    if len(data) > SMALL and _claims_much(data):
        _walk(data)
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadMessage(f"a message is not msgpack: {type(error).__name__} {error}") from error


def checker(annotation: Any) -> Check:
    """Whether a decoded value is of the annotated type, all the way down.

    Knows int (64 bits), float (an int passes), str, bytes, bool, None, unions, tuples, Mapping,
    Any (what msgpack knows, not too deep), and `Annotated[..., check]` for what annotations cannot
    say. Raises TypeError for anything else.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        found: Check = arguments[1]
        return found
    if annotation is Any:
        return _is_shallow
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if origin is Union or origin is types.UnionType:
        choices = tuple(map(checker, arguments))
        return lambda value: any(choice(value) for choice in choices)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        each = checker(arguments[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    if origin is tuple:
        return _fixed(tuple(map(checker, arguments)))
    if origin is Mapping:
        key, item = map(checker, arguments)
        return lambda value: (
            type(value) is dict and all(map(key, value)) and all(map(item, value.values()))
        )
    raise TypeError(f"no wire check for the annotation {annotation!r}")


def field_checks(cls: type[Any]) -> Mapping[str, Check]:
    """A check for each field of a dataclass, from its annotations."""
    return {name: checker(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


def _is_int(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, tuple | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return True
    return False


def _fixed(each: tuple[Check, ...]) -> Check:
    def check(value: Any) -> bool:
        return (
            type(value) is tuple
            and len(value) == len(each)
            and all(found(part) for found, part in zip(each, value, strict=True))
        )

    return check


_SCALARS: Mapping[Any, Check] = {
    int: _is_int,
    float: lambda value: type(value) is float or _is_int(value),
    str: lambda value: type(value) is str,
    bytes: lambda value: type(value) is bytes,
    bool: lambda value: type(value) is bool,
    type(None): lambda value: value is None,
}


def is_layout(value: Any) -> bool:
    """A layout: (rows, ((name, dtype, values, offsets...), ...)), buffers (start, *shape)."""
    return (
        type(value) is tuple
        and len(value) == 2
        and _is_count(value[0])
        and type(value[1]) is tuple
        and all(map(_is_column, value[1]))
    )


def is_handle(value: Any) -> bool:
    """A pool handle's plain form: owner, six counts, layout."""
    return (
        type(value) is tuple
        and len(value) == 8
        and type(value[0]) is str
        and all(map(_is_count, value[1:7]))
        and is_layout(value[7])
    )


def _is_column(value: Any) -> bool:
    return (
        type(value) is tuple
        and len(value) >= 3
        and type(value[0]) is str
        and type(value[1]) is str
        and all(
            type(buffer) is tuple and len(buffer) >= 1 and all(map(_is_count, buffer))
            for buffer in value[2:]
        )
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _claims_much(data: bytes | memoryview) -> bool:
    """Whether length headers in these bytes could claim more memory than is cheap.

    msgpack makes room for as many elements as a header claims, at every level, before it reads
    them: a kilobyte of nested headers can ask for gigabytes. Only bytes 0xdc-0xdf start a header
    that claims more than 15, and no header can claim more than there are bytes (the unpacker's own
    rule). Small messages pass by this bound alone; others are walked.
    """
    whole = bytes(data)
    headers = sum(whole.count(code) for code in (b"\xdc", b"\xdd", b"\xde", b"\xdf"))
    return 16 * headers * len(whole) > CHEAP_BYTES


_WIDTHS: Mapping[int, tuple[str, int]] = {  # header byte → format of its length, bytes beside it
    0xC4: (">B", 0),
    0xC5: (">H", 0),
    0xC6: (">I", 0),
    0xC7: (">B", 1),
    0xC8: (">H", 1),
    0xC9: (">I", 1),
    0xD9: (">B", 0),
    0xDA: (">H", 0),
    0xDB: (">I", 0),
}
_LENGTHS: Mapping[int, tuple[str, int]] = {  # array and map headers: format, values an element
    0xDC: (">H", 1),
    0xDD: (">I", 1),
    0xDE: (">H", 2),
    0xDF: (">I", 2),
}
_PLAIN: Mapping[int, int] = {  # header byte → bytes that follow
    **dict.fromkeys([0xC0, 0xC2, 0xC3], 0),
    **{0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8},
    **{0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17},
}


def _walk(data: bytes | memoryview) -> None:
    """Reads headers only. Raises BadMessage for claims beyond what is there, or too deep."""
    view, size, at = memoryview(data), len(data), 0
    open_: list[int] = [1]  # values still to come, by open container
    pending = 1  # their sum: each needs a byte at least
    while open_:
        if open_[-1] == 0:
            open_.pop()
            continue
        if at >= size:
            raise BadMessage("a message ends within a value")
        open_[-1] -= 1
        pending -= 1
        at, inside = _value(view, at)
        if inside is not None:
            pending += inside
            if pending > size - at or len(open_) > MAX_DEPTH:
                raise BadMessage(
                    f"a message claims {pending} values at depth {len(open_)} in {size - at} bytes"
                )
            open_.append(inside)


def _value(view: memoryview, at: int) -> tuple[int, int | None]:
    """Where the value at `at` ends (a container: its header), and how many values are in it."""
    code = view[at]
    at += 1
    if code <= 0x7F or code >= 0xE0:
        return at, None
    if code <= 0x9F:
        return at, (code & 0x0F) * (2 if code <= 0x8F else 1)
    if code <= 0xBF:
        return at + (code & 0x1F), None
    if code in _PLAIN:
        return at + _PLAIN[code], None
    known = _WIDTHS.get(code) or _LENGTHS.get(code)
    if known is None:
        raise BadMessage(f"a message has the unused msgpack code {code:#x}")
    form, factor = known
    width = struct.calcsize(form)
    if at + width > len(view):
        raise BadMessage("a message ends within a length")
    (length,) = struct.unpack_from(form, view, at)
    at += width
    return (at, length * factor) if code in _LENGTHS else (at + factor + length, None)
