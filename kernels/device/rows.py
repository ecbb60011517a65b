"""gather_rows, write_rows_ and scatter_rows: rows by index, in the widest unit that fits a row."""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from flowgraph.kernels.device.variant import BLOCK, WARPS, Variant, launch, power_of_two

INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
# Columns of one program when rows are added: 16 bytes for each of 256 threads (AMD's four waves).
SCATTER_BYTES = 4096


@triton.jit
def move_rows(
    source,  # [*, C] rows of units
    target,  # [*, C]
    index,  # int64 [M]: which row of the source (gather) or of the target (write)
    rows,  # M
    width,  # C / PER
    source_stride,  # elements from row to row / PER
    target_stride,
    PER: tl.constexpr,  # elements of a 16-byte unit, 1 where rows are not made of those
    WRITE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    named = tl.load(index + row, mask=row < rows, other=0)
    if WRITE:
        from_row, to_row = row, named
    else:
        from_row, to_row = named, row
    mask = (row < rows)[:, None] & (column < width * PER)[None, :]
    begin = source + (from_row * source_stride * PER)[:, None] + column[None, :]
    to = target + (to_row * target_stride * PER)[:, None] + column[None, :]
    tl.store(to, tl.load(begin, mask=mask), mask=mask)


@triton.jit
def add_runs(
    values,  # [M, C]
    index,  # int64 [M], sorted
    order,  # int64 [M]: the row of `values` that each sorted place stands for
    target,  # [N, C], zeros
    rows,  # M
    width,  # C
    ACCUMULATE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Adds every run of equal indices in order; the program of a run's first place does it."""
    place = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = column < width
    row = tl.load(index + place)
    before = tl.load(index + place - 1, mask=place > 0, other=-1)
    if before != row:
        total = tl.zeros([BLOCK_C], dtype=ACCUMULATE)
        here = row
        while here == row:
            value = tl.load(values + tl.load(order + place) * width + column, mask=mask)
            total += value.to(ACCUMULATE)
            place += 1
            here = tl.load(index + place, mask=place < rows, other=-1)
        tl.store(target + row * width + column, total, mask=mask)


@triton.jit
def add_atomically(
    values,  # [M, C]
    index,  # int64 [M]
    target,  # [N, C] fp32 or fp64, zeros
    width,  # C
    ACCUMULATE: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Adds rows in whatever order programs run: faster with few duplicates, not repeatable."""
    place = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = column < width
    value = tl.load(values + place * width + column, mask=mask).to(ACCUMULATE)
    to = target + tl.load(index + place) * width + column
    tl.atomic_add(to, value, mask=mask, sem="relaxed")


def _move_variant(label: str, unit: str, per: int, write: bool, columns: int) -> Variant:
    strides = ("source_stride", "target_stride")
    return Variant(
        kernel=move_rows,
        label=label,
        signature={
            "source": f"*{unit}",
            "target": f"*{unit}",
            "index": "*i64",
            "rows": "i64",
            "width": "i32",
            **dict.fromkeys(strides, "i64"),
        },
        constexprs={
            "PER": per,
            "WRITE": write,
            "BLOCK_R": BLOCK // columns,
            "BLOCK_C": columns,
        },
        aligned=("source", "target", "index"),
        load=16 if per == 2 else int(unit[1:]) // 8,
        store=16 if per == 2 else int(unit[1:]) // 8,
    )


def _add_variant(unit: str, size: int) -> Variant:
    return Variant(
        kernel=add_runs,
        label=unit,
        signature={
            "values": f"*{unit}",
            "index": "*i64",
            "order": "*i64",
            "target": f"*{unit}",
            "rows": "i64",
            "width": "i32",
        },
        constexprs={"ACCUMULATE": tl.float32, "BLOCK_C": SCATTER_BYTES // size},
        aligned=("values", "index", "order", "target", "width"),
    )


VARIANTS = (
    _move_variant("gather, 16-byte units", "i64", 2, False, BLOCK),
    _move_variant("write, 16-byte units", "i64", 2, True, BLOCK),
    _move_variant("gather, short rows", "i64", 2, False, 16),
    _move_variant("gather, 4-byte tokens", "i32", 1, False, 1),
    _move_variant("gather, 8-byte tokens", "i64", 1, False, 1),
    _move_variant("gather, 2-byte rows", "i16", 1, False, BLOCK),
    _add_variant("fp32", 4),
    _add_variant("bf16", 2),
    Variant(
        kernel=add_atomically,
        label="bf16",
        signature={"values": "*bf16", "index": "*i64", "target": "*fp32", "width": "i32"},
        constexprs={"ACCUMULATE": tl.float32, "BLOCK_C": SCATTER_BYTES // 2},
        aligned=("values", "index", "target", "width"),
        store=0,
    ),
)


def gather(source: Tensor, rows: Tensor, out: Tensor | None) -> Tensor:
    """source [N, ...], rows int64 [M] -> [M, ...], into `out` (contiguous) where given."""
    if out is None:
        out = source.new_empty((rows.shape[0], *source.shape[1:]))
    _launch(source, out, rows, write=False)
    return out


def write(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """target[rows] = values, in place, whatever the strides of `target`'s rows."""
    _launch(values, target, rows, write=True)


def scatter_add(values: Tensor, index: Tensor, rows: int, deterministic: bool) -> Tensor:
    """values [M, ...] -> [rows, ...]; sums in fp32 (fp64 for fp64)."""
    wide = torch.float64 if values.dtype == torch.float64 else torch.float32
    accumulate = tl.float64 if values.dtype == torch.float64 else tl.float32
    dense = values.contiguous()
    width = dense[:1].numel() if dense.shape[0] else 0
    shape = (rows, *values.shape[1:])
    out = torch.zeros(shape, dtype=values.dtype if deterministic else wide, device=values.device)
    if width == 0:
        return out.to(values.dtype)
    columns = min(SCATTER_BYTES // values.element_size(), power_of_two(width))
    grid = (index.shape[0], triton.cdiv(width, columns))
    shared = {"ACCUMULATE": accumulate, "BLOCK_C": columns, "num_warps": WARPS}
    if deterministic:
        ordered, order = torch.sort(index, stable=True)
        launch(
            add_runs,
            grid,
            values.device,
            dense,
            ordered,
            order,
            out,
            index.shape[0],
            width,
            **shared,
        )
    else:
        launch(add_atomically, grid, values.device, dense, index, out, width, **shared)
    return out.to(values.dtype)


def _launch(source: Tensor, target: Tensor, index: Tensor, *, write: bool) -> None:
    if index.shape[0] == 0 or source.numel() == 0 or target.numel() == 0:
        return
    begin, to, per = _units(source, target)
    units = begin.shape[1]
    columns = min(BLOCK, power_of_two(units))
    grid = (triton.cdiv(index.shape[0], BLOCK // columns), triton.cdiv(units, columns))
    launch(move_rows, grid, source.device,
        begin, to, index, index.shape[0], units // per, begin.stride(0) // per,
        to.stride(0) // per, PER=per, WRITE=write, BLOCK_R=BLOCK // columns, BLOCK_C=columns,
        num_warps=WARPS,
    )  # fmt: skip


def _units(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor, int]:
    """Both as [N, C] of the widest integer that divides rows, strides and addresses; PER."""
    sides = [_matrix(source), _matrix(target)]
    size = source.element_size()
    divisor = 16
    for side in sides:
        row, stride = side.shape[1] * size, side.stride(0) * size
        divisor = math.gcd(divisor, row, stride, side.data_ptr())
    unit = INTEGERS[min(8, divisor)]
    begin, to = (side.view(unit) for side in sides)
    return begin, to, 2 if divisor == 16 else 1


def _matrix(tensor: Tensor) -> Tensor:
    """[N, C] with dense rows; a view where the rows are dense already."""
    matrix = tensor.unsqueeze(1) if tensor.dim() == 1 else tensor.flatten(1)
    return matrix if matrix.shape[1] < 2 or matrix.stride(1) == 1 else matrix.contiguous()
