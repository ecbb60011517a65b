"""Rows by index in plain torch: the reference of the Triton kernels and the path on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)


def gather(source: Tensor, rows: Tensor, out: Tensor | None) -> Tensor:
    """source [N, ...], rows int64 [M] -> [M, ...], into `out` where given."""
    if out is None:
        return source.index_select(0, rows)
    return torch.index_select(source, 0, rows, out=out)


def scatter_add(values: Tensor, index: Tensor, rows: int, deterministic: bool) -> Tensor:
    """values [M, ...] -> [rows, ...]; on the CPU index_add_ adds in the order of `index`."""
    wide = values.float() if values.dtype in HALF else values
    out = wide.new_zeros((rows, *values.shape[1:]))
    return out.index_add_(0, index, wide).to(values.dtype)


def write(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """target[rows] = values, in place."""
    target.index_copy_(0, rows, values)
