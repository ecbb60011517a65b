"""Reductions per segment in plain torch: the reference of the kernels and the path on the CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


def reduce(values: Tensor, offsets: Tensor, op: str, empty: float) -> Tensor:
    """values [T, ...] -> [S, ...]; `empty` where a segment has no rows; op: sum, max, min."""
    offsets = offsets.to(values.device)
    if not values.is_floating_point():
        segments = _segment_of(offsets)
        owned = values[int(offsets[0]) : int(offsets[-1])]
        out = values.new_zeros((offsets.shape[0] - 1, *values.shape[1:]))
        return out.index_add_(0, segments, owned)
    wide = values.float() if values.dtype in HALF else values
    columns = math.prod(wide.shape[1:])
    flat = wide.reshape(wide.shape[0], columns)[int(offsets[0]) : int(offsets[-1])]
    bounds = offsets - offsets[0]
    if flat.numel() == 0 or bounds.shape[0] == 1:
        shape = (offsets.shape[0] - 1, *values.shape[1:])
        return values.new_full(shape, empty)
    reduced = torch.segment_reduce(
        flat.contiguous(), op, offsets=bounds, axis=0, initial=empty, unsafe=True
    )
    return reduced.view(-1, *values.shape[1:]).to(values.dtype)


def statistics(rewards: Tensor, offsets: Tensor, ddof: int) -> tuple[Tensor, Tensor]:
    """rewards [R] -> mean and standard deviation of every group: fp32 [G] each."""
    wide = rewards.float()
    count = (offsets[1:] - offsets[:-1]).to(wide.device)
    mean = reduce(wide, offsets, "sum", 0.0) / count.clamp(min=1)
    owned = wide[int(offsets[0]) : int(offsets[-1])]
    centred = owned - mean[_segment_of(offsets.to(wide.device))]
    squares = reduce(centred * centred, offsets - offsets[0], "sum", 0.0)
    deviation = torch.sqrt(squares / (count - ddof).clamp(min=1))
    return mean, torch.where(count > ddof, deviation, 0.0)


def _segment_of(offsets: Tensor) -> Tensor:
    """The segment of each owned row: int64 [offsets[-1] - offsets[0]]."""
    numbers = torch.arange(offsets.shape[0] - 1, device=offsets.device)
    return torch.repeat_interleave(numbers, offsets[1:] - offsets[:-1])
