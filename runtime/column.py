"""One field of many records: flat values and, for ragged dims, the offsets that part them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowgraph.ir.types import Field

Int64s = NDArray[np.int64]
Values = NDArray[Any]

STORAGE: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "uint8": np.dtype(np.uint8),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(np.uint16),  # numpy has no bfloat16: its bits
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "str": np.dtype(np.uint8),
}
"""The numpy dtype that holds a field's dtype."""


WORTH_A_SLICE = 200
"""Values from which on copying a run as a slice is quicker than value by value."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values of one field, columnar as in Arrow.

    dtype: the field's. values: [T, ...] of `STORAGE[dtype]`, the fixed dims last.
    offsets: int64, outermost first; level 0 has rows + 1 entries, level k + 1 one more than level
    k's last entry; each starts at 0 and the innermost ends at T. No offsets: T is the rows.
    A str field has one more level, over its UTF-8 bytes.

    Raises ValueError when the arrays are not that (their shapes: the entries are not read).
    """

    dtype: str
    values: Values
    offsets: tuple[Int64s, ...] = ()

    def __post_init__(self) -> None:
        storage = STORAGE.get(self.dtype)
        if storage is None or self.values.dtype != storage or self.values.ndim < 1:
            raise ValueError(
                f"a {self.dtype} column expects {storage} [T, ...], got "
                f"{self.values.dtype} {list(self.values.shape)}"
            )
        if self.dtype == "str" and not self.offsets:
            raise ValueError("a str column expects offsets over its bytes")
        check_offsets(self.offsets, self.values.shape[0])

    @property
    def rows(self) -> int:
        return (self.offsets[0].size - 1) if self.offsets else int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """[T, *fixed], of the flat values."""
        return self.values.shape

    def copy_into(self, place: Values) -> None:
        """The flat values, to memory of the same shape and dtype."""
        np.copyto(place, self.values)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + sum(int(level.nbytes) for level in self.offsets)

    def lengths(self) -> Int64s:
        """Length of each row in its outermost ragged dim: int64 [rows]."""
        if not self.offsets:
            raise ValueError("a column without ragged dims has no lengths")
        return np.diff(self.offsets[0])

    def take(self, index: Int64s) -> Column:
        """The rows at `index` (int64 [M], any order, repeats allowed), copied."""
        if not self.offsets:
            return Column(self.dtype, self.values[index])
        levels: list[Int64s] = []
        starts, sizes = index, np.ones_like(index)
        for offsets in self.offsets:
            at = _numbers(starts, sizes) if levels else index
            starts, sizes = offsets[:-1][at], np.diff(offsets)[at]
            levels.append(bounds_of(sizes))
        return Column(self.dtype, _gathered(self.values, starts, sizes), tuple(levels))

    def slice(self, start: int, stop: int) -> Column:
        """Rows start..stop; the values are a view."""
        levels: list[Int64s] = []
        for offsets in self.offsets:
            bounds = offsets[start : stop + 1]
            start, stop = int(bounds[0]), int(bounds[-1])
            levels.append(bounds - start)
        return Column(self.dtype, self.values[start:stop], tuple(levels))

    @classmethod
    def concat(cls, columns: Sequence[Column]) -> Column:
        """The rows of all columns in order (at least one column).

        Raises ValueError when dtypes, ragged levels or fixed dims differ. A column without values
        takes part whatever its fixed dims: nothing told it how long a symbol is.
        """
        first = columns[0]
        if len(columns) == 1:
            return first
        for column in columns:
            if column.dtype != first.dtype or len(column.offsets) != len(first.offsets):
                raise ValueError(f"cannot join {column.kind} to {first.kind}")
        filled = [column.values for column in columns if column.values.shape[0]]
        shapes = {values.shape[1:] for values in filled}
        if len(shapes) > 1:
            raise ValueError(f"cannot join fixed dims {' and '.join(map(str, sorted(shapes)))}")
        levels = [_chain([column.offsets[k] for column in columns]) for k in range(first.depth)]
        return cls(first.dtype, np.concatenate(filled or [first.values]), tuple(levels))

    @property
    def depth(self) -> int:
        """Number of ragged levels, the bytes of a str included."""
        return len(self.offsets)

    @property
    def kind(self) -> str:
        """For messages: dtype, ragged levels and fixed dims."""
        dims = ["*"] * self.depth + [str(size) for size in self.values.shape[1:]]
        return f"{self.dtype}[{', '.join(dims)}]"

    @classmethod
    def empty(cls, field: Field) -> Column:
        """No rows of the field; a symbol's length, unknown here, is 0."""
        fixed = tuple(d if isinstance(d, int) else 0 for d in field.dims[len(field.ragged) :])
        levels = len(field.ragged) + (field.dtype == "str")
        offsets = tuple(np.zeros(1, np.int64) for _ in range(levels))
        return cls(field.dtype, np.zeros((0, *fixed), STORAGE[field.dtype]), offsets)

    def equals(self, other: Column) -> bool:
        """Bit for bit (a NaN equals itself)."""
        return (
            self.kind == other.kind
            and all(map(np.array_equal, self.offsets, other.offsets))
            and self.values.shape == other.values.shape
            and self.values.tobytes() == other.values.tobytes()
        )


def check_offsets(levels: Sequence[Int64s], total: int) -> None:
    """Raises ValueError when they do not part `total` values as a Column's do."""
    inner = [*levels[1:], None][: len(levels)]
    for level, (offsets, below) in enumerate(zip(levels, inner, strict=True)):
        if offsets.dtype != np.int64 or offsets.ndim != 1 or offsets.size < 1:
            raise ValueError(f"offsets[{level}]: expects int64 [N + 1], got {offsets.dtype}")
        size = total if below is None else below.size - 1
        if offsets[0] != 0 or offsets[-1] != size:
            raise ValueError(
                f"offsets[{level}]: expects 0..{size}, got {offsets[0]}..{offsets[-1]}"
            )


def bounds_of(sizes: Int64s) -> Int64s:
    """Offsets of runs of these sizes: int64 [N] to [N + 1]."""
    bounds = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=bounds[1:])
    return bounds


def _numbers(starts: Int64s, sizes: Int64s) -> Int64s:
    """The numbers of all runs `start .. start + size`, one run after another."""
    bounds = bounds_of(sizes)
    return np.repeat(starts - bounds[:-1], sizes) + np.arange(bounds[-1])


def _gathered(values: Values, starts: Int64s, sizes: Int64s) -> Values:
    """Runs of values behind one another, copied: as slices where these are long enough to pay."""
    filled = np.flatnonzero(sizes)
    starts, sizes = starts[filled], sizes[filled]
    ends = starts + sizes
    breaks = np.flatnonzero(starts[1:] != ends[:-1])  # neighbours are one slice
    if not filled.size or (breaks.size + 1) * WORTH_A_SLICE > sizes.sum():
        return values[_numbers(starts, sizes)]
    begin = [0, *(breaks + 1).tolist()]
    end = [*breaks.tolist(), filled.size - 1]
    slices = zip(starts[begin].tolist(), ends[end].tolist(), strict=True)
    return np.concatenate([values[a:b] for a, b in slices])


def _chain(levels: Sequence[Int64s]) -> Int64s:
    return bounds_of(np.concatenate([np.diff(level) for level in levels]))
