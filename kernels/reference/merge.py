"""merge_features in plain torch: the reference of the Triton kernel and the path on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor


def merge(embeddings: Tensor, levels: Tensor, positions: Tensor) -> Tensor:
    """embeddings [T, D], levels [F, L, D], positions [F] -> [L, T, D]."""
    count = levels.shape[1]
    merged = embeddings.new_empty((count, *embeddings.shape))
    if count:
        merged[0].copy_(embeddings)
        merged[1:].zero_()
    for level in range(count):
        merged[level].index_copy_(0, positions, levels[:, level])
    return merged


def split(grad: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """grad [L, T, D] -> gradients of embeddings [T, D] and of levels [F, L, D]."""
    if grad.shape[0] == 0:
        empty = grad.new_zeros((positions.shape[0], 0, grad.shape[2]))
        return grad.new_zeros(grad.shape[1:]), empty
    levels = torch.stack([level.index_select(0, positions) for level in grad], 1)
    embeddings = grad[0].index_fill(0, positions, 0)
    return embeddings, levels
