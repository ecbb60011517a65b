"""Records of one type side by side: what every task takes and gives, and what the pool holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.types import RecordType
from flowgraph.runtime import rows as rows_
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.column import STORAGE, Column, Int64s

__all__ = ["ALIGN", "Batch", "Column", "Layout"]

ALIGN = 64
"""Buffers start at multiples of this: a cache line, and what vector loads like."""

MANY_BYTES = 1 << 22
"""From here on numpy asks the system for large pages."""

_INT64 = np.dtype(np.int64)

Layout = Sequence[Any]
"""`(rows, ((name, dtype, values, offsets...), ...))`, a buffer being `(start, *shape)`: plain data.

Lists and tuples are the same thing here, since msgpack gives back lists.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """`rows` records as named columns of equal length. Columns are never written to.

    Raises ValueError when a column has another number of rows.
    """

    rows: int
    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if column.rows != self.rows:
                raise ValueError(f"column '{name}' has {column.rows} rows, expects {self.rows}")

    @classmethod
    def empty(cls, type: RecordType) -> Batch:
        return cls(0, {field.name: Column.empty(field) for field in type.fields})

    @classmethod
    def from_rows(cls, type: RecordType, rows: Sequence[Any]) -> Batch:
        """Mappings or objects with attributes, one a record; fields beyond the type's are left out.

        Raises RecordMismatch naming field, row and sample when a value does not fit its field.
        """
        return cls(len(rows), join_parts(len(rows), rows_.parts_of(type, rows)))

    def to_rows(self) -> list[dict[str, Any]]:
        """One dict a record: scalars as Python's, text as str, one ragged dim as an array.

        Further ragged dims come as lists of arrays; bfloat16 as float32 of the same value. Arrays
        are views.
        """
        cells = {name: rows_.cells_of(column) for name, column in self.columns.items()}
        return [{name: cell[i] for name, cell in cells.items()} for i in range(self.rows)]

    def row(self, i: int) -> dict[str, Any]:
        """Record `i`, as in `to_rows`. Raises IndexError outside 0..rows - 1."""
        if not 0 <= i < self.rows:
            raise IndexError(f"row {i} of {self.rows}")
        return self.slice(i, i + 1).to_rows()[0]

    def take(self, index: Sequence[int] | Int64s | NDArray[np.bool_]) -> Batch:
        """The records at `index` (or where a bool mask is true), copied, in that order."""
        wanted = np.asarray(index)
        if wanted.dtype == np.bool_:
            wanted = np.flatnonzero(wanted)
        at = wanted.astype(np.int64, copy=False)
        return Batch(int(at.size), {name: c.take(at) for name, c in self.columns.items()})

    def slice(self, start: int, stop: int) -> Batch:
        """Records start..stop; values are views."""
        start, stop, _ = slice(start, stop).indices(self.rows)
        stop = max(start, stop)
        return Batch(stop - start, {n: c.slice(start, stop) for n, c in self.columns.items()})

    @classmethod
    def concat(cls, batches: Iterable[Batch]) -> Batch:
        """All records in order. Raises ValueError for no batch, or for differing columns."""
        parts = tuple(batches)
        if not parts:
            raise ValueError("concat needs at least one batch to know the columns")
        if len(parts) == 1:
            return parts[0]
        names = parts[0].columns.keys()
        for part in parts:
            if part.columns.keys() != names:
                raise ValueError(f"cannot join columns {sorted(part.columns)} to {sorted(names)}")
        columns = {name: Column.concat([part.columns[name] for part in parts]) for name in names}
        return cls(sum(part.rows for part in parts), columns)

    def select(self, names: Iterable[str]) -> Batch:
        """These columns only, in this order. Raises KeyError for one that is not there."""
        return Batch(self.rows, {name: self.columns[name] for name in names})

    def with_columns(self, columns: Mapping[str, Column]) -> Batch:
        """The same records with columns added or replaced."""
        return Batch(self.rows, {**self.columns, **columns})

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def equals(self, other: Batch) -> bool:
        """The same columns in the same order, bit for bit."""
        return list(self.columns) == list(other.columns) and all(
            column.equals(other.columns[name]) for name, column in self.columns.items()
        )

    def layout(self) -> tuple[Layout, int]:
        """Where `write_into` puts each buffer, and the bytes it needs in all."""
        return layout_of(self.rows, self.columns)

    def write_into(self, memory: memoryview) -> None:
        """Copies all buffers to where `layout` says. Raises ValueError when memory is too small."""
        write_columns(self.rows, self.columns, memory)

    @classmethod
    def read(cls, layout: Layout, memory: memoryview) -> Batch:
        """The batch written with this layout, as views; read-only where the memory is.

        Raises ValueError when the layout does not lie within the memory.
        """
        rows, columns = layout
        read: dict[str, Column] = {}
        for name, dtype, values, *offsets in columns:
            levels = tuple(_view(memory, _INT64, place) for place in offsets)
            read[name] = Column(dtype, _view(memory, STORAGE[dtype], values), levels)
        return cls(rows, read)


class Part(Protocol):
    """What a column must tell to be laid out and written: a `Column`, or one not joined yet."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offsets(self) -> tuple[Int64s, ...]: ...
    def copy_into(self, place: NDArray[Any]) -> None: ...


def layout_of(rows: int, columns: Mapping[str, Part]) -> tuple[Layout, int]:
    """Where each buffer of these columns goes, and the bytes needed in all."""
    end = 0
    placed: list[tuple[Any, ...]] = []
    for name, column in columns.items():
        shapes = (column.shape, *(offsets.shape for offsets in column.offsets))
        buffers: list[tuple[int, ...]] = []
        itemsize = STORAGE[column.dtype].itemsize
        for shape in shapes:
            buffers.append((end, *shape))
            end = aligned(end + math.prod(shape) * itemsize)
            itemsize = 8  # of the offsets
        placed.append((name, column.dtype, *buffers))
    return (rows, tuple(placed)), end


def write_columns(rows: int, columns: Mapping[str, Part], memory: memoryview) -> None:
    """Copies all buffers to where `layout_of` says."""
    (_, placed), _ = layout_of(rows, columns)
    for name, dtype, values, *levels in placed:
        column = columns[name]
        column.copy_into(_view(memory, STORAGE[dtype], values))
        for offsets, place in zip(column.offsets, levels, strict=True):
            np.copyto(_view(memory, _INT64, place), offsets)


def join_parts(rows: int, parts: Mapping[str, Column | Cells]) -> dict[str, Column]:
    """Columns of them all. Many bytes go into one piece of memory: numpy asks for large pages for
    it, and what takes the time is the first touch of each page (3.5 times as fast, at 9 MiB)."""
    loose = {name: part for name, part in parts.items() if isinstance(part, Cells)}
    layout, nbytes = layout_of(rows, loose)
    if nbytes < MANY_BYTES:
        made: Mapping[str, Column] = {name: part.column() for name, part in loose.items()}
    else:
        memory = np.empty(nbytes, np.uint8).data
        write_columns(rows, loose, memory)
        made = Batch.read(layout, memory).columns
    return {n: made[n] if isinstance(part, Cells) else part for n, part in parts.items()}


def aligned(nbytes: int) -> int:
    """The next multiple of ALIGN."""
    return -(-nbytes // ALIGN) * ALIGN


def _view(memory: memoryview, dtype: np.dtype[Any], place: Sequence[int]) -> np.ndarray[Any, Any]:
    start, *shape = place
    count = math.prod(shape)
    if start < 0 or count < 0 or start + count * dtype.itemsize > memory.nbytes:
        raise ValueError(f"buffer {list(place)} lies outside {memory.nbytes} bytes")
    if count == 0:
        return np.zeros(shape, dtype)
    found = np.frombuffer(memory, dtype, count, start)
    return found if len(shape) == 1 else found.reshape(shape)
