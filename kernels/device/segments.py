"""segment_reduce and group_statistics: one program a segment and block of columns, in row order."""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flowgraph.kernels.device.variant import BLOCK, WARPS, Variant, launch, power_of_two, upload

ACCUMULATORS = {torch.float64: tl.float64, torch.int64: tl.int64}
WIDEST = 256
ELEMENTS = 2 * BLOCK


@triton.jit
def reduce_segments(
    values,  # [T, C]
    offsets,  # int64 [S + 1]
    out,  # [S, C]
    width,  # C
    empty,  # what a segment of no rows gives
    OP: tl.constexpr,  # "sum", "max" or "min"
    ACCUMULATE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    segment = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    begin = tl.load(offsets + segment)
    end = tl.load(offsets + segment + 1)
    if OP == "sum":
        total = tl.zeros([BLOCK_R, BLOCK_C], dtype=ACCUMULATE)
    else:
        total = tl.full([BLOCK_R, BLOCK_C], empty, ACCUMULATE)
    spoiled = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.int32)
    for first in range(begin, end, BLOCK_R):
        row = first + tl.arange(0, BLOCK_R).to(tl.int64)
        mask = (row < end)[:, None] & (column < width)[None, :]
        at = values + (row * width)[:, None] + column[None, :]
        value = tl.load(at, mask=mask, other=0).to(ACCUMULATE)
        if OP == "sum":
            total += value
        else:
            # a maximum drops NaN unless told to keep it; torch keeps it
            spoiled |= (mask & (value != value)).to(tl.int32)
            value = tl.where(mask, value, empty)
            total = tl.maximum(total, value) if OP == "max" else tl.minimum(total, value)
    if OP == "sum":
        result = tl.sum(total, 0)
    else:
        result = tl.max(total, 0) if OP == "max" else tl.min(total, 0)
        result = tl.where(tl.max(spoiled, 0) > 0, float("nan"), result)
    tl.store(out + segment * width + column, result, mask=column < width)


@triton.jit
def group_moments(
    rewards,  # [R]
    offsets,  # int64 [G + 1]
    mean,  # fp32 [G]
    deviation,  # fp32 [G]
    ddof,
    BLOCK_R: tl.constexpr,
):
    group = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets + group)
    end = tl.load(offsets + group + 1)
    count = end - begin
    total = tl.zeros([BLOCK_R], dtype=tl.float32)
    for first in range(begin, end, BLOCK_R):
        row = first + tl.arange(0, BLOCK_R)
        total += tl.load(rewards + row, mask=row < end, other=0).to(tl.float32)
    average = tl.sum(total, 0) / tl.maximum(count, 1).to(tl.float32)
    squares = tl.zeros([BLOCK_R], dtype=tl.float32)
    for first in range(begin, end, BLOCK_R):
        row = first + tl.arange(0, BLOCK_R)
        reward = tl.load(rewards + row, mask=row < end, other=0).to(tl.float32)
        centred = tl.where(row < end, reward - average, 0.0)
        squares += centred * centred
    freedom = tl.maximum(count - ddof, 1).to(tl.float32)
    spread = tl.sqrt(tl.sum(squares, 0) / freedom)
    tl.store(mean + group, average)
    tl.store(deviation + group, tl.where(count > ddof, spread, 0.0))


def _variant(kind: str, op: str, accumulate: tl.dtype, columns: int) -> Variant:
    return Variant(
        kernel=reduce_segments,
        label=f"{op} of {kind}, {'rows' if columns > 1 else 'tokens'}",
        signature={
            "values": f"*{kind}",
            "offsets": "*i64",
            "out": f"*{kind}",
            "width": "i32",
            "empty": "fp32",
        },
        constexprs={
            "OP": op,
            "ACCUMULATE": accumulate,
            "BLOCK_R": ELEMENTS // columns,
            "BLOCK_C": columns,
        },
        aligned=("values", "offsets", "out", *(("width",) if columns > 1 else ())),
        load=16 if columns > 1 else 0,
        store=0,
    )


VARIANTS = (
    _variant("fp32", "sum", tl.float32, 1),
    _variant("fp32", "sum", tl.float32, WIDEST),
    _variant("bf16", "sum", tl.float32, WIDEST),
    _variant("fp32", "max", tl.float32, 1),
    _variant("i64", "sum", tl.int64, 1),
    Variant(
        kernel=group_moments,
        label="fp32",
        signature={
            "rewards": "*fp32",
            "offsets": "*i64",
            "mean": "*fp32",
            "deviation": "*fp32",
            "ddof": "i32",
        },
        constexprs={"BLOCK_R": 128},
        aligned=("rewards", "offsets", "mean", "deviation"),
        load=0,
        store=0,
        warps=1,
    ),
)


def reduce(values: Tensor, offsets: Tensor, op: str, empty: float) -> Tensor:
    """values [T, ...] -> [S, ...]; `empty` where a segment has no rows; op: sum, max, min."""
    segments = offsets.shape[0] - 1
    out = values.new_empty((segments, *values.shape[1:]))
    if out.numel() == 0:
        return out
    width = out[0].numel()
    columns = min(WIDEST, power_of_two(width))
    launch(reduce_segments, (segments, triton.cdiv(width, columns)), values.device,
        values.contiguous(), upload(offsets.numpy(), values.device), out, width, empty, OP=op,
        ACCUMULATE=ACCUMULATORS.get(values.dtype, tl.float32), BLOCK_R=ELEMENTS // columns,
        BLOCK_C=columns, num_warps=WARPS,
    )  # fmt: skip
    return out


def statistics(rewards: Tensor, offsets: Tensor, ddof: int) -> tuple[Tensor, Tensor]:
    """rewards [R] -> mean and standard deviation of every group: fp32 [G] each."""
    groups = offsets.shape[0] - 1
    mean, deviation = torch.empty((2, groups), device=rewards.device).unbind(0)
    if groups:
        table = upload(offsets.numpy(), rewards.device)
        launch(
            group_moments,
            (groups,),
            rewards.device,
            rewards.contiguous(),
            table,
            mean,
            deviation,
            ddof,
            BLOCK_R=128,
            num_warps=1,
        )
    return mean, deviation
