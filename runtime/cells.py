"""One field's values while the rows still hold them: checked, counted, and copied once, to where
they shall be.

Joining thousands of small arrays is quick; asking each of them for anything in Python is not, nor
is memory that is touched for the first time. So the cells of a column are asked for no more than
the checks need, and one call copies all of them straight to their place: shared memory, perhaps.
What is odd about them is seen cell by cell (`rows.py`), which leaves arrays to join all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flowgraph.ir.types import Field
from flowgraph.runtime.column import STORAGE, Column, Int64s, Values, bounds_of
from flowgraph.runtime.failures import RecordMismatch


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cells:
    """The rows' values of a field: arrays or tensors of its storage, [n, *fixed] each.

    offsets: as a `Column`'s. shape: [T, *fixed], of all of them joined.
    """

    field: Field
    cells: Sequence[Any]
    offsets: tuple[Int64s, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> str:
        return self.field.dtype

    @property
    def rows(self) -> int:
        return (self.offsets[0].size - 1) if self.offsets else self.shape[0]

    def copy_into(self, place: Values) -> None:
        """place: `shape`, of the field's storage. Raises RecordMismatch for a tensor without
        bytes here: one that needs a gradient, is sparse, or is on a device."""
        if not place.size:
            return
        if type(self.cells[0]) is np.ndarray:
            np.concatenate(self.cells, out=place)
            return
        torch = sys.modules["torch"]
        whole = torch.from_numpy(place)
        try:
            torch.cat(self.cells, out=whole.view(self.cells[0].dtype))
        except RuntimeError as problem:
            raise self._misfit(problem) from problem

    def require_plain(self) -> None:
        """Raises now what `copy_into` would raise later."""
        if self.cells and type(self.cells[0]) is not np.ndarray:
            for row, cell in enumerate(self.cells):
                if (problem := oddity(cell)) is not None:
                    raise self._at(row, problem)

    def column(self) -> Column:
        """Joined, in memory of its own. Raises what `copy_into` does."""
        values = np.empty(self.shape, STORAGE[self.dtype])
        self.copy_into(values)
        return Column(self.dtype, values, self.offsets)

    def _misfit(self, problem: RuntimeError) -> RecordMismatch:
        """Joining them failed: which of them is not plain memory of this process, and why."""
        for row, cell in enumerate(self.cells):
            if (found := oddity(cell)) is not None:
                return self._at(row, found)
        return self._at(0, f"tensors that cannot be joined ({str(problem).splitlines()[0]})")

    def _at(self, row: int, got: str) -> RecordMismatch:
        return RecordMismatch(f"expects an array, got {got}", field=self.field.name, row=row)


def oddity(tensor: Any) -> str | None:
    """Why a tensor is not plain memory of this process, and what to do about it; None: it is."""
    if tensor.requires_grad:
        return "a tensor that needs a gradient: detach() it"
    if tensor.device.type != "cpu":
        return f"a tensor on {tensor.device}: cpu() it"
    return "a sparse tensor: to_dense() it" if tensor.is_sparse else None


def counted(field: Field, cells: Sequence[Any]) -> Cells | None:
    """The cells, if one call can join them as they are; None when one of them is odd in any way:
    another kind of object, another dtype, other dims."""
    if not cells or len(field.ragged) != 1 or field.dtype == "str":
        return None
    kind, count = type(cells[0]), len(cells)
    dtype = _dtype_of(field.dtype, kind)
    if dtype is None or list(map(type, cells)).count(kind) != count:
        return None
    if [cell.dtype for cell in cells].count(dtype) != count:
        return None
    inner = _inner_dims(field, kind, cells)
    if inner is None:
        return None
    count_one = len if inner or kind is np.ndarray else kind.numel
    offsets = bounds_of(np.fromiter(map(count_one, cells), np.int64, count))
    shape = (int(offsets[-1]), *inner)
    return Cells(field=field, cells=cells, offsets=(offsets,), shape=shape)


def _dtype_of(dtype: str, kind: type) -> Any:
    """What the cells' `dtype` must be; None for what is neither array nor tensor."""
    if kind is np.ndarray:
        return STORAGE[dtype]
    torch = sys.modules.get("torch")  # without it nobody has a tensor
    return getattr(torch, dtype) if torch is not None and kind is torch.Tensor else None


def _inner_dims(field: Field, kind: Any, cells: Sequence[Any]) -> tuple[int, ...] | None:
    """Dims after the ragged one, which all cells share and the field allows; None otherwise."""
    fixed = field.dims[1:]
    if not fixed:  # the usual case, asked for as cheaply as can be
        dims = [cell.ndim for cell in cells] if kind is np.ndarray else list(map(kind.dim, cells))
        return () if dims.count(1) == len(cells) else None
    shapes = {tuple(cell.shape[1:]) for cell in cells}
    inner = shapes.pop()
    if shapes or len(inner) != len(fixed):
        return None
    fits = all(not isinstance(d, int) or d == n for d, n in zip(fixed, inner, strict=True))
    return inner if fits else None
