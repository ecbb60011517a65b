"""Between batches and what the user's functions see: typed records, or whole columns.

A function's first parameter says what a record is: a dataclass, a NamedTuple or a TypedDict gets
the fields that it declares, a list or tuple where it declares one; anything else, or nothing, gets
a SimpleNamespace with all fields, ragged ones as arrays. Arrays are read-only: they are the pool's.
"""

import collections.abc
import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.column import Int64s, check_offsets
from flowgraph.runtime.failures import RecordMismatch
from flowgraph.runtime.loose import LooseBatch
from flowgraph.runtime.rows import cells_of, locked

Make = Callable[[dict[str, Any]], Any]
"""From all fields of a record by name to the object handed to the user's function."""

_LISTS = (
    list,
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.Reversible,
)


def maker(function: Callable[..., Any]) -> Make:
    """What makes records for this function. Annotations that cannot be resolved count as none."""
    kind = _first_annotation(function)
    if isinstance(kind, type):
        if dataclasses.is_dataclass(kind):
            return _chosen(kind, kind, [f.name for f in dataclasses.fields(kind) if f.init])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return _chosen(kind, kind, list(kind._fields))
        if typing.is_typeddict(kind):
            return _chosen(dict, kind, list(kind.__annotations__))
        if issubclass(kind, Mapping):
            return dict
    if typing.get_origin(kind) in (dict, Mapping):
        return dict
    return lambda fields: SimpleNamespace(**fields)


def _chosen(build: Callable[..., Any], kind: type, names: list[str]) -> Make:
    hints = typing.get_type_hints(kind)  # Annotated and Required are stripped
    casts = {name: _cast_of(hints.get(name)) for name in names}

    def make(fields: dict[str, Any]) -> Any:
        return build(**{n: cast(fields[n]) for n, cast in casts.items() if n in fields})

    return make


def _cast_of(hint: Any) -> Callable[[Any], Any]:
    """From arrays to the sequences that a field's annotation asks for."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin not in (*_LISTS, tuple) or not arguments:
        return _as_is
    inner = arguments[0]
    series = tuple if origin is tuple else list
    if inner in (bool, int, float) or (isinstance(inner, type) and issubclass(inner, np.generic)):
        return lambda value: series(value.tolist() if isinstance(value, np.ndarray) else value)
    cast = _cast_of(inner)
    return lambda value: series(cast(part) for part in value)


def _as_is(value: Any) -> Any:
    return value


def _first_annotation(function: Callable[..., Any]) -> Any:
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return None
    try:
        hints = typing.get_type_hints(function)
    except NameError:
        return None  # a name that only a type checker imports
    return hints.get(parameters[0])


def columns(batch: Batch) -> dict[str, Any]:
    """A whole batch for a `batched=True` function.

    A field without ragged dims is an array [N, ...]; a ragged one its flat values, with int64
    `<name>.offsets` (and `.offsets1`, ... for inner dims) beside; text a list of N strings;
    bfloat16 is given as float32.
    """
    given: dict[str, Any] = {}
    for name, column in batch.columns.items():
        if column.dtype == "str":
            given[name] = cells_of(column)
            continue
        given[name] = locked(column)
        for level, offsets in enumerate(column.offsets):
            given[f"{name}.offsets{level or ''}"] = offsets
    return given


def batch_of(type: RecordType, given: Mapping[str, Any], rows: int) -> LooseBatch:
    """What a `batched=True` function returned as columns, settled, in the form of `columns`.

    Ragged fields may also come as one entry a row. Raises RecordMismatch as `Batch.from_rows`.
    """
    flat = {f.name: _flat(f, given) for f in type.fields if f"{f.name}.offsets" in given}
    whole = {f.name: _one_a_row(f, given[f.name]) for f in type.fields if _is_whole(f, given, rows)}
    known = flat | whole
    others = tuple(field for field in type.fields if field.name not in known)
    records = [_Row(given, i) for i in range(rows)]
    made = LooseBatch.of(RecordType(fields=others, key=()), records)
    ordered = {name: known.get(name) or made.columns[name] for name in type.names}
    for name, part in ordered.items():
        if part.rows != rows:
            raise ValueError(f"column '{name}' has {part.rows} rows, expects {rows}")
        if isinstance(part, Cells):
            part.require_plain()
    return LooseBatch(rows, ordered)


def _is_whole(field: Field, given: Mapping[str, Any], rows: int) -> bool:
    """Whether a field without ragged dims came as one array, [rows, *fixed]."""
    value = given.get(field.name)
    return (
        isinstance(value, np.ndarray)
        and not field.ragged
        and field.dtype != "str"
        and value.ndim == 1 + len(field.dims)
        and len(value) == rows
    )


def _flat(field: Field, given: Mapping[str, Any]) -> Column | Cells:
    """A ragged field from its flat values and its offsets."""
    levels = [f"{field.name}.offsets{level or ''}" for level in range(len(field.ragged))]
    offsets = tuple(np.asarray(given[name], dtype=np.int64) for name in levels)
    inner = Field(name=field.name, dtype=field.dtype, dims=field.dims[len(levels) :])
    return _parted(_one_a_row(inner, given[field.name]), offsets)


def _one_a_row(field: Field, values: Any) -> Column | Cells:
    """Values of a field without ragged dims, [N, *fixed]: an array is checked as one row of N."""
    if isinstance(values, np.ndarray) and field.dtype != "str":
        as_one = Field(name=field.name, dtype=field.dtype, dims=(Ragged("rows"), *field.dims))
        try:
            one = LooseBatch.of(RecordType(fields=(as_one,), key=()), [{field.name: values}])
            return _parted(one.columns[field.name], ())
        except RecordMismatch:
            pass  # row by row finds out which
    records = [{field.name: value} for value in values]
    return LooseBatch.of(RecordType(fields=(field,), key=()), records).columns[field.name]


def _parted(part: Column | Cells, offsets: tuple[Int64s, ...]) -> Column | Cells:
    """The same values, parted by other offsets. Raises ValueError where they do not fit."""
    if isinstance(part, Column):
        return Column(part.dtype, part.values, offsets)
    check_offsets(offsets, part.shape[0])
    return replace(part, offsets=offsets)


class _Row(Mapping[str, Any]):
    """Row `i` of columns, looked up when asked."""

    def __init__(self, given: Mapping[str, Any], i: int) -> None:
        self._given, self._i = given, i

    def __getitem__(self, name: str) -> Any:
        return self._given[name][self._i]

    def __iter__(self) -> typing.Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)
