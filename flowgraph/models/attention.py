"""Attention that decoder and encoder share: rotary positions and isolated segments.

Legend: R rows, L positions of a row, H heads, K key-value heads, D head width.
"""

import torch
from torch import Tensor
from torch.nn import functional


def rotary_table(length: int, width: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, width/2] of RoPE (Su et al., arXiv 2104.09864)."""
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x_RLHD: Tensor, cos_RLF: Tensor, sin_RLF: Tensor) -> Tensor:
    """Turn each pair (i, i + D/2) by its angle; F = D/2."""
    cos, sin = cos_RLF.unsqueeze(-2), sin_RLF.unsqueeze(-2)
    first, second = x_RLHD.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def segment_mask(segment_ids_RL: Tensor, *, causal: bool) -> Tensor:
    """Who may look at whom, bool [R, 1, L, L]: only positions of one's own segment.

    Padding (segment 0) is one more segment: its rows are garbage, but never NaN.
    """
    mask = segment_ids_RL.unsqueeze(-1) == segment_ids_RL.unsqueeze(-2)
    return (mask.tril() if causal else mask).unsqueeze(1)


def attend(q_RHLD: Tensor, k_RKMD: Tensor, v_RKMD: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of L queries over M keys; `mask=None` means causal. Returns [R, L, H*D]."""
    mixed = functional.scaled_dot_product_attention(
        q_RHLD,
        k_RKMD,
        v_RKMD,
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=q_RHLD.shape[1] != k_RKMD.shape[1],
    )
    return mixed.transpose(1, 2).flatten(2)
