"""segment_reduce, group_statistics: one result per segment of consecutive rows.

Bytes moved: values once; results are small. Sums run in fp32, in a fixed order.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from flowgraph.kernels.backend import apply, path
from flowgraph.kernels.ragged import check_offsets

Reduction = Literal["sum", "mean", "max", "min"]
EMPTY = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf}


def segment_reduce(values: Tensor, offsets: Tensor, op: Reduction = "sum") -> Tensor:
    """Reduces `values[offsets[s]:offsets[s + 1]]` for every segment s: [S, ...].

    values: [T, ...]; floating for every op, integers and bool for `sum` (int64 results, exact).
    offsets: int64 [S + 1], host. A segment of no rows gives 0 (sum, mean), -inf (max), inf (min).
    Sums of bf16 and fp16 run in fp32 and are rounded once. Differentiable for `sum` and `mean`.
    """
    check_offsets(offsets, values.shape[0] if values.dim() else None)
    if op not in EMPTY:
        raise ValueError(f"op: expects one of {sorted(EMPTY)}, got {op!r}")
    if not values.is_floating_point():
        if op != "sum":
            raise ValueError(f"op {op!r}: expects floating values, got {values.dtype}")
        return _reduce(values.to(torch.int64), offsets, "sum")
    if op in ("max", "min"):
        if values.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"op {op!r} has no gradient; detach the values")
        return _reduce(values, offsets, op)
    reduced: Tensor = apply(_Sum, values, offsets)
    if op == "sum":
        return reduced
    counts = (offsets[1:] - offsets[:-1]).clamp(min=1).to(values.device)
    return reduced / counts.view(-1, *(1,) * (values.dim() - 1)).to(values.dtype)


def group_statistics(rewards: Tensor, offsets: Tensor, *, ddof: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every group's rewards (GRPO): fp32 [G], fp32 [G].

    rewards: [R] floating. offsets: int64 [G + 1], host; groups may differ in size.
    ddof: the deviation is sqrt(sum (r - mean)^2 / (n - ddof)); 0 where n <= ddof. No gradient:
    rewards are data. Two passes, so that a large common offset does not cancel.
    """
    check_offsets(offsets, rewards.shape[0] if rewards.dim() else None)
    if rewards.dim() != 1 or not rewards.is_floating_point():
        raise ValueError(
            f"rewards: expects floating [R], got {rewards.dtype} {list(rewards.shape)}"
        )
    result: tuple[Tensor, Tensor] = path("segments", rewards).statistics(
        rewards.detach(), offsets, ddof
    )
    return result


class _Sum(torch.autograd.Function):
    """(values [T, ...], offsets) -> sums [S, ...]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor) -> Tensor:
        ctx.offsets, ctx.rows = offsets, values.shape[0]
        return _reduce(values, offsets, "sum")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return apply(_Spread, grad, ctx.offsets, ctx.rows), None


class _Spread(torch.autograd.Function):
    """(sums [S, ...], offsets, rows) -> [rows, ...]: every row gets its segment's value."""

    @staticmethod
    def forward(ctx: Any, sums: Tensor, offsets: Tensor, rows: int) -> Tensor:
        ctx.offsets = offsets
        lengths = torch.diff(
            offsets, prepend=offsets.new_zeros(1), append=offsets.new_tensor([rows])
        )
        edge = sums.new_zeros((1, *sums.shape[1:]))
        return torch.repeat_interleave(
            torch.cat([edge, sums, edge]), lengths.to(sums.device), 0, output_size=rows
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return apply(_Sum, grad, ctx.offsets), None, None


def _reduce(values: Tensor, offsets: Tensor, op: str) -> Tensor:
    reduced: Tensor = path("segments", values).reduce(values.detach(), offsets, op, EMPTY[op])
    return reduced
