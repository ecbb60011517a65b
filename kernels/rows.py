"""gather_rows, scatter_rows, write_rows_: rows by index, from a flat or a paged buffer and back.

Bytes moved: each row is read once and written once, plus 8 bytes of index a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flowgraph.kernels.backend import apply, path


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """A paged buffer: logical row r lies in row `table[r // rows] * rows + r % rows`.

    table: int64 [pages], the buffer's page of every logical page. rows: rows a page.
    """

    table: Tensor
    rows: int

    def resolve(self, index: Tensor) -> Tensor:
        """Rows of the buffer for logical rows `index` (int64 [M])."""
        page = torch.div(index, self.rows, rounding_mode="floor")
        return self.table[page] * self.rows + (index - page * self.rows)


def gather_rows(
    source: Tensor,
    index: Tensor,
    *,
    base: int = 0,
    pages: Pages | None = None,
    out: Tensor | None = None,
    deterministic: bool = True,
) -> Tensor:
    """`source[base + index]`, or through a page table: [M, ...].

    source: [N, ...], any dtype, any row stride. index: int64 or int32 [M] on the same device, in
    any order, duplicates welcome; with `pages`, logical rows. out: where to write (contiguous,
    no gradient). Differentiable in `source`: the gradient is `scatter_rows`, summed in fp32, in
    the order of `index` unless `deterministic=False`.
    ValueError on an index out of range (CPU; devices check nothing, a check would wait for them).
    """
    rows = _checked_index(source, index, pages, base)
    if out is not None:
        expected = (index.shape[0], *source.shape[1:])
        if tuple(out.shape) != expected or out.dtype != source.dtype or not out.is_contiguous():
            raise ValueError(f"out: expects contiguous {source.dtype} {list(expected)}")
        with torch.no_grad():
            filled: Tensor = path("rows", source).gather(source, rows, out)
        return filled
    gathered: Tensor = apply(_Gather, source, rows, deterministic)
    return gathered


def scatter_rows(values: Tensor, index: Tensor, rows: int, *, deterministic: bool = True) -> Tensor:
    """[rows, ...] of zeros with `values[m]` added at row `index[m]`; duplicates add up.

    values: [M, ...] floating; sums run in fp32 (fp64 for fp64) and are rounded once.
    deterministic: add in the order of `index`; the same bits on every run. Differentiable.
    """
    _check_rows(values, index)
    _check_range(index, rows)
    scattered: Tensor = apply(_Scatter, values, index.to(torch.int64), rows, deterministic)
    return scattered


def write_rows_(
    target: Tensor,
    index: Tensor,
    values: Tensor,
    *,
    base: int = 0,
    pages: Pages | None = None,
    distinct: bool = False,
) -> Tensor:
    """Writes `target[base + index] = values` in place and returns `target`; no gradient.

    A row named twice would hold whichever came last on that device, so it is a ValueError;
    `distinct=True` promises that there is none and saves the check (and, on a device, a wait).
    """
    _check_rows(values, index)
    rows = _checked_index(target, index, pages, base)
    if values.shape[1:] != target.shape[1:] or values.dtype != target.dtype:
        raise ValueError(
            f"values: expects {target.dtype} [M, {list(target.shape[1:])}], "
            f"got {values.dtype} {list(values.shape)}"
        )
    if target[:1].numel() and not target[0].is_contiguous():
        raise ValueError("target: expects rows that are dense in memory, at any row stride")
    if not distinct:
        unique, count = torch.unique(rows, return_counts=True)
        if unique.shape[0] != rows.shape[0]:
            raise ValueError(f"index: row {int(unique[count > 1][0])} is written twice")
    with torch.no_grad():
        path("rows", target).write(target, rows, values.detach())
    return target


def _checked_index(source: Tensor, index: Tensor, pages: Pages | None, base: int) -> Tensor:
    """Rows of `source`: int64 [M]."""
    if source.dim() < 1:
        raise ValueError("source: expects [N, ...], got a scalar")
    if index.dim() != 1 or index.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"index: expects int64 [M], got {index.dtype} {list(index.shape)}")
    if index.device != source.device:
        raise ValueError(f"index: expects {source.device}, got {index.device}")
    rows = index.to(torch.int64)
    if pages is not None:
        _check_range(rows, pages.table.shape[0] * pages.rows)
        rows = pages.resolve(rows)
    if base:
        rows = rows + base
    _check_range(rows, source.shape[0])
    return rows


def _check_rows(values: Tensor, index: Tensor) -> None:
    if values.dim() < 1 or index.dim() != 1 or values.shape[0] != index.shape[0]:
        raise ValueError(
            f"expects values [M, ...] and index [M], got {list(values.shape)}, {list(index.shape)}"
        )


def _check_range(index: Tensor, rows: int) -> None:
    if index.device.type != "cpu" or index.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(index))
    if low < 0 or high >= rows:
        raise ValueError(f"index: expects 0..{rows - 1}, got {low}..{high}")


class _Gather(torch.autograd.Function):
    """(source, rows, deterministic) -> source[rows]."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, rows: Tensor, deterministic: bool) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.rows, ctx.deterministic = source.shape[0], deterministic
        gathered: Tensor = path("rows", source).gather(source, rows, None)
        return gathered

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return apply(_Scatter, grad, rows, ctx.rows, ctx.deterministic), None, None


class _Scatter(torch.autograd.Function):
    """(values, index, rows, deterministic) -> zeros[rows] with values added."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, rows: int, deterministic: bool) -> Tensor:
        ctx.save_for_backward(index)
        ctx.deterministic = deterministic
        scattered: Tensor = path("rows", values).scatter_add(values, index, rows, deterministic)
        return scattered

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (index,) = ctx.saved_tensors
        return apply(_Gather, grad, index, ctx.deterministic), None, None, None
