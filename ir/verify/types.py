"""Rules of record types, whoever makes them."""

from collections.abc import Callable

from flowgraph.ir.graph import Stream
from flowgraph.ir.types import DTYPES, Field, Ragged
from flowgraph.ir.verify.faults import Faults, fault, nearest, repeated

TypeRule = Callable[[Stream], Faults]


def fields_are_named_once(stream: Stream) -> Faults:
    """A field is named once."""
    for name in repeated(field.name for field in stream.type.fields):
        hint = f"another name for one {name!r}"
        yield fault(stream, f"field {name!r} once", "it twice", hint, term=name)


def dtypes_are_known(stream: Stream) -> Faults:
    """A field's dtype is one of those above."""
    for field in stream.type.fields:
        if field.dtype not in DTYPES:
            hint = nearest(field.dtype, DTYPES)
            got = repr(field.dtype)
            yield fault(stream, f"a dtype of field {field.name!r}", got, hint, term=field.dtype)


def ragged_dims_lead(stream: Stream) -> Faults:
    """Ragged dims come before all others."""
    for field in stream.type.fields:
        if _leading(field) != len(field.ragged):
            ordered = sorted(field.dims, key=lambda dim: not isinstance(dim, Ragged))
            hint = f"'{Field(name=field.name, dtype=field.dtype, dims=tuple(ordered))}'"
            expects = f"ragged dims of {field.name!r} before all others"
            yield fault(stream, expects, f"'{field}'", hint, term=str(field))


def sizes_are_positive(stream: Stream) -> Faults:
    """A fixed size is at least 1."""
    for field in stream.type.fields:
        if any(isinstance(dim, int) and dim < 1 for dim in field.dims):
            expects = f"sizes of at least 1 in field {field.name!r}"
            hint = "a size of 1, or a ragged dim, which may be empty"
            yield fault(stream, expects, f"'{field}'", hint, term=str(field))


def keys_are_fields(stream: Stream) -> Faults:
    """A key is an int64 field without dims."""
    for key in stream.type.key:
        found = stream.type.field(key)
        if found is None or found.dtype != "int64" or found.dims:
            got = f"'{found}'" if found else "no such field"
            expects = f"key {key!r} to be an int64 field"
            yield fault(stream, expects, got, f"'{key}: int64' among its fields", term=key)


def _leading(field: Field) -> int:
    """How many ragged dims stand first."""
    count = 0
    for dim in field.dims:
        if not isinstance(dim, Ragged):
            break
        count += 1
    return count


TYPE_RULES: tuple[TypeRule, ...] = (
    fields_are_named_once,
    dtypes_are_known,
    ragged_dims_lead,
    sizes_are_positive,
    keys_are_fields,
)
