"""merge_features: one pass that takes every row of the result from the side it comes from."""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from flowgraph.kernels.device import rows as row_kernels
from flowgraph.kernels.device.variant import BLOCK, WARPS, Variant, launch, power_of_two


@triton.jit
def merge_rows(
    embeddings,  # [T, C] units
    features,  # [F, L, C]
    origin,  # int64 [T]: the feature row that stands at each token, -1 for none
    merged,  # [L, T, C]
    tokens,  # T
    width,  # C / PER
    PER: tl.constexpr,  # elements of a 16-byte unit, 1 where rows are not made of those
    LEVELS: tl.constexpr,  # L; 0 leaves zeros at the placeholders (the gradient of embeddings)
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    level = tl.program_id(2).to(tl.int64)
    columns = width * PER
    there = tl.load(origin + row, mask=row < tokens, other=-1)
    inside = (column < columns)[None, :]
    own = ((row < tokens) & (there < 0) & (level == 0))[:, None] & inside
    value = tl.load(embeddings + (row * width * PER)[:, None] + column[None, :], mask=own, other=0)
    if LEVELS > 0:
        given = (there >= 0)[:, None] & inside
        begin = (there * LEVELS + level) * width * PER
        feature = tl.load(features + begin[:, None] + column[None, :], mask=given, other=0)
        value = tl.where(given, feature, value)
    to = merged + ((level * tokens + row) * width * PER)[:, None] + column[None, :]
    tl.store(to, value, mask=(row < tokens)[:, None] & inside)


def _variant(label: str, unit: str, per: int, levels: int) -> Variant:
    pointers = ("embeddings", "features", "merged")
    return Variant(
        kernel=merge_rows,
        label=label,
        signature={
            "embeddings": f"*{unit}",
            "features": f"*{unit}",
            "origin": "*i64",
            "merged": f"*{unit}",
            "tokens": "i64",
            "width": "i32",
        },
        constexprs={"PER": per, "LEVELS": levels, "BLOCK_R": 1, "BLOCK_C": BLOCK},
        aligned=(*pointers, "origin"),
        load=16 if per == 2 else int(unit[1:]) // 8,
        store=16 if per == 2 else int(unit[1:]) // 8,
    )


VARIANTS = (
    _variant("one level", "i64", 2, 1),
    _variant("four levels", "i64", 2, 4),
    _variant("gradient", "i64", 2, 0),
    _variant("one level, 2-byte units", "i16", 1, 1),
)


def merge(embeddings: Tensor, levels: Tensor, positions: Tensor) -> Tensor:
    """embeddings [T, D], levels [F, L, D], positions [F] -> [L, T, D]."""
    count = levels.shape[1]
    merged = embeddings.new_empty((count, *embeddings.shape))
    _launch(embeddings.contiguous(), levels.contiguous(), positions, merged, count)
    return merged


def split(grad: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """grad [L, T, D] -> gradients of embeddings [T, D] and of levels [F, L, D]."""
    count, tokens, width = grad.shape
    dense = grad.contiguous()
    embeddings = grad.new_zeros((tokens, width)) if count == 0 else torch.empty_like(dense[0])
    if count:
        _launch(dense[0], dense[0], positions, embeddings, 0)
    level = torch.arange(count, device=grad.device) * tokens
    rows = (positions[:, None] + level[None, :]).reshape(-1)
    levels = row_kernels.gather(dense.view(count * tokens, width), rows, None)
    return embeddings, levels.view(positions.shape[0], count, width)


def _launch(
    embeddings: Tensor, features: Tensor, positions: Tensor, merged: Tensor, levels: int
) -> None:
    tokens, width = embeddings.shape
    if merged.numel() == 0:
        return
    origin = torch.full((tokens,), -1, dtype=torch.int64, device=embeddings.device)
    origin[positions] = torch.arange(positions.shape[0], device=embeddings.device)
    row = width * embeddings.element_size()
    addresses = [tensor.data_ptr() for tensor in (embeddings, features, merged)]
    divisor = math.gcd(16, row, *addresses)
    unit = row_kernels.INTEGERS[min(8, divisor)]
    units, per = row // unit.itemsize, 2 if divisor == 16 else 1
    columns = min(BLOCK, power_of_two(units))
    grid = (triton.cdiv(tokens, BLOCK // columns), triton.cdiv(units, columns), max(1, levels))
    launch(merge_rows, grid, merged.device,
        embeddings.view(unit), features.view(unit), origin, merged.view(unit), tokens, units // per,
        PER=per, LEVELS=levels, BLOCK_R=BLOCK // columns, BLOCK_C=columns, num_warps=WARPS,
    )  # fmt: skip
