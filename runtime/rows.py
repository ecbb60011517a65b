"""Between records as Python objects and columns: the checks of a declared type, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from flowgraph.ir.types import Field, RecordType
from flowgraph.runtime.cells import Cells, counted, oddity
from flowgraph.runtime.column import STORAGE, Column, Int64s, Values, bounds_of
from flowgraph.runtime.failures import RecordMismatch

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2}
"""Kinds of numbers: a value may move to a higher kind, never to a lower one."""


class _Mismatch(Exception):
    """What is wrong with a cell; the caller knows field, row and sample."""


def parts_of(type: RecordType, rows: Sequence[Any]) -> dict[str, Column | Cells]:
    """Columns of all the type's fields, checked but not joined where one call can join them.

    Raises RecordMismatch.
    """
    parts: dict[str, Column | Cells] = {}
    for field in type.fields:
        parts[field.name] = counted(field, _cells(field, rows)) or _column(field, rows)
    _check_shared_dims(type, rows, parts)
    return parts


def _cells(field: Field, rows: Sequence[Any]) -> list[Any]:
    """What all rows hold of a field with one ragged dim; none when a row is unusual."""
    if len(field.ragged) != 1:
        return []
    name = field.name
    if list(map(type, rows)).count(dict) == len(rows):
        return [row.get(name) for row in rows]
    return [None if isinstance(row, Mapping) else getattr(row, name, None) for row in rows]


def _column(field: Field, rows: Sequence[Any]) -> Column | Cells:
    if not rows:
        return Column.empty(field)
    if field.dtype == "str" and len(field.ragged) != len(field.dims):
        raise RecordMismatch("text may have ragged dims only", field=field.name, row=0)
    if not field.dims and field.dtype != "str":
        numbers = _plain_numbers(field, rows)
        if numbers is not None:
            return Column(field.dtype, numbers)
    depth = len(field.ragged)
    flat: list[Values] = []
    sizes: list[list[int]] = [[] for _ in range(depth + (field.dtype == "str"))]
    shape: tuple[int, ...] | None = None
    for index, row in enumerate(rows):
        try:
            for leaf in _leaves(_cell(row, field.name), depth, sizes):
                values = (
                    _text(field, leaf, sizes[-1]) if field.dtype == "str" else _leaf(field, leaf)
                )
                shape = _same_shape(field, values, shape)
                flat.append(values)
        except _Mismatch as problem:
            raise RecordMismatch(
                str(problem), field=field.name, row=index, sample=_sample(row)
            ) from problem.__cause__
    offsets = tuple(bounds_of(np.array(level, np.int64)) for level in sizes)
    filled = [values for values in flat if values.shape[0]]
    if field.dtype == "str":
        return Column(field.dtype, np.concatenate(filled or [np.empty(0, np.uint8)]), offsets)
    if shape is None:  # no row told how long a symbol is
        shape = Column.empty(field).shape[1:]
    total = int(offsets[-1][-1]) if offsets else len(rows)
    return Cells(field=field, cells=filled, offsets=offsets, shape=(total, *shape))


def _plain_numbers(field: Field, rows: Sequence[Any]) -> Values | None:
    """All cells of a scalar field at once; None when one is odd: cell by cell finds out which."""
    try:
        cells = [_cell(row, field.name) for row in rows]
        kinds = set(map(type, cells))
        if not kinds <= {int, float} and kinds != {bool}:
            return None
        return _cast(field.dtype, np.array(cells))
    except (_Mismatch, OverflowError):
        return None


def _cell(row: Any, name: str) -> Any:
    try:
        return row[name] if isinstance(row, Mapping) else getattr(row, name)
    except (KeyError, AttributeError):
        raise _Mismatch(f"is missing; the record is {_short(row)}") from None


def _sample(row: Any) -> int | None:
    sample = row.get("sample") if isinstance(row, Mapping) else getattr(row, "sample", None)
    return int(sample) if isinstance(sample, int | np.integer) else None


def _leaves(cell: Any, depth: int, sizes: list[list[int]]) -> Iterator[Any]:
    """The arrays of the innermost ragged dim (all of a cell when there is none), in order.

    Notes the lengths of all ragged levels on the way, except the innermost numbers of a text.
    """
    if depth == 0:
        yield cell
        return
    if isinstance(cell, str | bytes | Mapping) or not hasattr(cell, "__len__"):
        raise _Mismatch(f"expects {depth} ragged dims, got {_short(cell)}")
    pending = [(cell, 0)]
    while pending:
        part, level = pending.pop()
        if isinstance(part, str | bytes) or not hasattr(part, "__len__"):
            raise _Mismatch(f"expects {depth} ragged dims, got {_short(part)} at level {level}")
        try:
            sizes[level].append(len(part))
        except TypeError:  # an array or a tensor of no dims
            raise _Mismatch(f"expects {depth} ragged dims, got {_short(part)}") from None
        if level == depth - 1:
            yield part
        else:
            pending.extend((part[i], level + 1) for i in reversed(range(len(part))))


def _text(field: Field, leaf: Any, lengths: list[int]) -> Values:
    """UTF-8 of one text, or of a sequence of texts, noting each one's length."""
    texts = list(leaf) if field.ragged else [leaf]
    for text in texts:
        if not isinstance(text, str):
            raise _Mismatch(f"expects text, got {_short(text)}")
    coded = [text.encode() for text in texts]
    lengths.extend(map(len, coded))
    return np.frombuffer(b"".join(coded), np.uint8)


def _leaf(field: Field, leaf: Any) -> Values:
    """[n, *fixed] of the field's storage dtype, n = 1 when the field has no ragged dim."""
    ragged = bool(field.ragged)
    try:
        values = np.asarray(_float_of(leaf))
    except (ValueError, TypeError, RuntimeError) as problem:  # the last: it needs a gradient
        if hasattr(leaf, "requires_grad") and (odd := oddity(leaf)) is not None:
            raise _Mismatch(f"expects an array, got {odd}") from problem
        raise _Mismatch(f"expects an array, got {_short(leaf)} ({problem})") from problem
    fixed = field.dims[len(field.ragged) :]
    if ragged and values.size == 0 and values.ndim == 1 and fixed:
        values = values.reshape((0, *(d if isinstance(d, int) else 0 for d in fixed)))
    if not ragged:
        values = values[np.newaxis]
    got = values.shape[1:]
    fits = len(got) == len(fixed) and all(
        not isinstance(want, int) or want == have for want, have in zip(fixed, got, strict=True)
    )
    if not fits:
        want = ", ".join(map(str, field.dims))
        raise _Mismatch(f"expects dims [{want}], got shape {list(np.shape(leaf))}")
    return _cast(field.dtype, values)


def _float_of(leaf: Any) -> Any:
    """A bfloat16 tensor as float32, which numpy has; anything else as it is."""
    return leaf.float() if str(getattr(leaf, "dtype", "")) == "torch.bfloat16" else leaf


def _same_shape(
    field: Field, values: Values, shape: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    if values.shape[0] == 0:
        return shape
    if shape is not None and values.shape[1:] != shape:
        names = ", ".join(map(str, field.dims))
        raise _Mismatch(
            f"dims [{names}]: a symbol has one length in a run, got {list(values.shape[1:])} "
            f"after {list(shape)}"
        )
    return values.shape[1:]


def _cast(dtype: str, values: Values) -> Values:
    """To the storage dtype, refusing whatever would change a value's kind or wrap around."""
    storage = STORAGE[dtype]
    if values.dtype == storage:
        return values  # for bfloat16: uint16 are its bits
    if values.size == 0:
        return values.astype(storage) if values.dtype.kind in "buif" else _refuse(dtype, values)
    kind = "f" if dtype == "bfloat16" else storage.kind
    rank = _RANK.get(values.dtype.kind)
    if rank is None or rank > _RANK[kind] or (rank < 1 and kind != "b"):
        return _refuse(dtype, values)
    if dtype == "bfloat16":
        return _to_bfloat16(values.astype(np.float32))
    if kind in "ui":
        limits = np.iinfo(storage)
        low, high = int(values.min()), int(values.max())
        if low < limits.min or high > limits.max:
            raise _Mismatch(f"expects {dtype}, got {low if low < limits.min else high}")
    with np.errstate(over="ignore"):
        stored = values.astype(storage)
    if kind == "f" and np.isinf(stored).sum() > np.isinf(values).sum():
        raise _Mismatch(f"expects {dtype}, got a number too large for it: {_short(values)}")
    return stored


def _refuse(dtype: str, values: Values) -> Values:
    raise _Mismatch(f"expects {dtype}, got {values.dtype} {_short(values)}")


def _to_bfloat16(values: Values) -> Values:
    """Bits of the nearest bfloat16, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _check_shared_dims(
    type: RecordType, rows: Sequence[Any], columns: Mapping[str, Column | Cells]
) -> None:
    """Fields that share a ragged dim (and those around it) have equal lengths row by row."""
    seen: dict[tuple[str, ...], tuple[str, Int64s]] = {}
    for field in type.fields:
        for level in range(len(field.ragged)):
            offsets = columns[field.name].offsets
            dims = field.ragged[: level + 1]
            other, known = seen.setdefault(dims, (field.name, offsets[level]))
            if np.array_equal(known, offsets[level]):
                continue
            first = int(np.flatnonzero(np.diff(known) != np.diff(offsets[level]))[0])
            sizes = np.diff(offsets[level])[first], np.diff(known)[first]
            row = first
            for outer in reversed(offsets[:level]):
                row = int(np.searchsorted(outer, row, side="right")) - 1
            raise RecordMismatch(
                f"has {sizes[0]} {dims[-1]} where '{other}' has {sizes[1]}",
                field=field.name,
                row=row,
                sample=_sample(rows[row]),
            )


def cells_of(column: Column) -> list[Any]:
    """One Python value a row; see `Batch.to_rows`."""
    if column.dtype == "str":
        data = column.values.tobytes()
        bounds = column.offsets[-1].tolist()
        leaves: Any = [data[a:b].decode() for a, b in pairwise(bounds)]
        levels = column.offsets[:-1]
        return _nested(leaves, levels)
    values = locked(column)
    if not column.offsets:
        return values.tolist() if values.ndim == 1 else list(values)
    return _nested(values, column.offsets)


def locked(column: Column) -> Values:
    """The flat values as a read-only view; bfloat16 as float32.

    Read-only everywhere, since in a worker they are another process's memory.
    """
    values = column.values.view()
    if column.dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    values.flags.writeable = False
    return values


def _nested(leaves: Any, levels: Sequence[Int64s]) -> list[Any]:
    for offsets in reversed(levels):
        bounds = offsets.tolist()
        leaves = [leaves[a:b] for a, b in pairwise(bounds)]
    return list(leaves)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
