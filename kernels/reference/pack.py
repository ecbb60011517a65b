"""pack and unpack by copying rows: the reference of the Triton kernel and the path on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.kernels.layout import Int64s, PackLayout

# Below this mean length the fixed price of a slice copy (0.4 us) exceeds that of an indexed copy
# (about 2 ns a row and field): measured on one Zen 3 core.
SHORT_ROWS = 96
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pack(
    values: Sequence[Tensor], layout: PackLayout, paddings: Sequence[int | float]
) -> tuple[Tensor, ...]:
    """(segment_ids, positions, *packed) for values [T, ...] each."""
    moves = _Moves(layout.source, layout.target, layout.sizes, layout.rows)
    shape = (layout.packs, layout.length)
    packed = [
        moves.apply(value, padding).view(*shape, *value.shape[1:])
        for value, padding in zip(values, paddings, strict=True)
    ]
    segment_ids = moves.label(layout.segments()).view(shape)
    return segment_ids, moves.count().view(shape), *packed


def unpack(packed: Tensor, layout: PackLayout) -> Tensor:
    """Values [T, ...] of packed [P, L, ...]; rows of samples that were left out are 0."""
    rows = packed.reshape(layout.rows, *packed.shape[2:])
    moves = _Moves(layout.target, layout.source, layout.sizes, int(layout.offsets[-1]))
    return moves.apply(rows, 0)


class _Moves:
    """The runs of rows that a result is made of, in its order: copied ones and padding.

    source, target, sizes: int64 [S], where each copied run comes from, goes to, how long it is.
    rows: rows of the result.
    """

    def __init__(self, source: Int64s, target: Int64s, sizes: Int64s, rows: int) -> None:
        # a run of no rows shares its start with what follows it, and must come first
        order = np.lexsort((sizes, target))
        ends = np.concatenate([np.zeros(1, np.int64), (target + sizes)[order]])
        gaps = np.concatenate([target[order], np.full(1, rows)]) - ends
        # gap, run, gap, run, ..., gap; a gap comes from nowhere, which is -1
        self.sizes = _interleaved(gaps, sizes[order])
        self.source = _interleaved(np.full_like(gaps, -1), source[order])
        self.order = order
        self.rows = rows
        self.short = rows < SHORT_ROWS * max(1, sizes.size)
        if self.short:
            begins = np.repeat(self.source, self.sizes)
            index = begins + np.where(begins < 0, 0, _within(self.sizes))
            self.index = torch.from_numpy(np.maximum(index, 0))
            self.padded = torch.from_numpy(np.flatnonzero(begins < 0))

    def apply(self, value: Tensor, padding: int | float) -> Tensor:
        """[rows, ...]: the copied rows of `value`, `padding` between them."""
        shape = (self.rows, *value.shape[1:])
        if value.numel() == 0:
            return value.new_full(shape, padding)
        if self.short:
            return value.index_select(0, self.index).index_fill_(0, self.padded, padding)
        out = value.new_empty(shape)
        gap = value.new_full((int(self.sizes[::2].max()), *value.shape[1:]), padding)
        bits, gap_bits = _bits(value), _bits(gap)
        runs = zip(self.source.tolist(), self.sizes.tolist(), strict=True)
        pieces = [
            bits[begin : begin + size] if begin >= 0 else gap_bits[:size]
            for begin, size in runs
            if size
        ]
        np.concatenate(pieces, out=_bits(out))
        return out

    def label(self, numbers: Int64s) -> Tensor:
        """int32 [rows]: each copied run's number (int64 [S], in the caller's order), -1 between."""
        gaps = np.full(numbers.size + 1, -1, dtype=np.int64)
        labels = _interleaved(gaps, numbers[self.order])
        return torch.from_numpy(np.repeat(labels.astype(np.int32), self.sizes))

    def count(self) -> Tensor:
        """int64 [rows]: each row's place in its copied run, 0 between."""
        up = np.arange(int(self.sizes[1::2].max(initial=0)), dtype=np.int64)
        still = np.zeros(int(self.sizes[::2].max()), dtype=np.int64)
        pieces = [
            (still if number % 2 == 0 else up)[:size]
            for number, size in enumerate(self.sizes.tolist())
        ]
        return torch.from_numpy(np.concatenate(pieces))


def _interleaved(gaps: Int64s, runs: Int64s) -> Int64s:
    """gaps[0], runs[0], gaps[1], ..., gaps[S]: int64 [2 S + 1]."""
    both = np.empty(gaps.size + runs.size, dtype=np.int64)
    both[::2], both[1::2] = gaps, runs
    return both


def _within(sizes: Int64s) -> Int64s:
    """0..size-1 for every size, end to end."""
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum()), dtype=np.int64) - np.repeat(before, sizes)


def _bits(tensor: Tensor) -> NDArray[Any]:
    """The tensor's bytes as integers of its element's width: numpy knows no bf16."""
    array: NDArray[Any] = tensor.detach().view(BITS[tensor.element_size()]).numpy()
    return array
