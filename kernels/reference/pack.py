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
    # In the plan's order the targets rise, and a run of no rows stands before what it shares a
    # start with: packs are filled one after another, from their first row on.
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
    # a run of no rows shares its start with what follows it, and must come first
    order = np.lexsort((layout.sizes, layout.source))
    source, target, sizes = (a[order] for a in (layout.target, layout.source, layout.sizes))
    moves = _Moves(source, target, sizes, int(layout.offsets[-1]))
    return moves.apply(rows, 0)


class _Moves:
    """The runs of rows that a result is made of, in its order: copied ones and padding.

    source, target, sizes: int64 [S], where each copied run comes from, goes to, how long it is;
    `target` rises. rows: rows of the result.
    """

    def __init__(self, source: Int64s, target: Int64s, sizes: Int64s, rows: int) -> None:
        self.source, self.target, self.sizes, self.rows = source, target, sizes, rows
        self.short = rows < SHORT_ROWS * max(1, sizes.size)
        if self.short:
            self._address()

    def _address(self) -> None:
        """Row by row: which row of the result is copied from which, `into` and `index`."""
        before = np.cumsum(self.sizes) - self.sizes
        count = np.arange(int(self.sizes.sum()))
        # within: each copied row's place in its run
        self.within = count - np.repeat(before, self.sizes)
        self.into = count + np.repeat(self.target - before, self.sizes)
        self.dense = self.into.size == self.rows
        index = count + np.repeat(self.source - before, self.sizes)
        if not self.dense:
            everywhere = np.zeros(self.rows, np.int64)
            everywhere[self.into] = index
            gaps = np.ones(self.rows, np.bool_)
            gaps[self.into] = False
            self.padded = torch.from_numpy(np.flatnonzero(gaps))
            index = everywhere
        self.index = torch.from_numpy(index)

    def apply(self, value: Tensor, padding: int | float) -> Tensor:
        """[rows, ...]: the copied rows of `value`, `padding` between them."""
        shape = (self.rows, *value.shape[1:])
        if value.numel() == 0:
            return value.new_full(shape, padding)
        if self.short:
            taken = value.index_select(0, self.index)
            return taken if self.dense else taken.index_fill_(0, self.padded, padding)
        out = value.new_empty(shape)
        source, sizes = self._runs(np.int64(-1), self.source)
        gap = value.new_full((int(sizes[::2].max()), *value.shape[1:]), padding)
        bits, gap_bits = _bits(value), _bits(gap)
        runs = zip(source.tolist(), sizes.tolist(), strict=True)
        pieces = [
            bits[begin : begin + size] if begin >= 0 else gap_bits[:size]
            for begin, size in runs
            if size
        ]
        np.concatenate(pieces, out=_bits(out))
        return out

    def label(self, numbers: Int64s) -> Tensor:
        """int32 [rows]: each copied run's number (int64 [S]), -1 between."""
        if self.short:
            labels = np.full(self.rows, -1, np.int32)
            labels[self.into] = np.repeat(numbers.astype(np.int32), self.sizes)
            return torch.from_numpy(labels)
        values, sizes = self._runs(np.int64(-1), numbers)
        return torch.from_numpy(np.repeat(values.astype(np.int32), sizes))

    def count(self) -> Tensor:
        """int64 [rows]: each row's place in its copied run, 0 between."""
        if self.short:
            places = np.zeros(self.rows, np.int64)
            places[self.into] = self.within
            return torch.from_numpy(places)
        _, sizes = self._runs(np.int64(0), self.sizes)
        up = np.arange(int(sizes[1::2].max(initial=0)), dtype=np.int64)
        still = np.zeros(int(sizes[::2].max()), dtype=np.int64)
        pieces = [
            (still if number % 2 == 0 else up)[:size] for number, size in enumerate(sizes.tolist())
        ]
        return torch.from_numpy(np.concatenate(pieces))

    def _runs(self, gap: np.int64, values: Int64s) -> tuple[Int64s, Int64s]:
        """Gap, run, gap, ..., gap: `gap` or the run's value, and rows: int64 [2 S + 1] each."""
        ends = np.concatenate([np.zeros(1, np.int64), self.target + self.sizes])
        gaps = np.concatenate([self.target, np.full(1, self.rows)]) - ends
        return _interleaved(np.full_like(gaps, gap), values), _interleaved(gaps, self.sizes)


def _interleaved(gaps: Int64s, runs: Int64s) -> Int64s:
    """gaps[0], runs[0], gaps[1], ..., gaps[S]: int64 [2 S + 1]."""
    both = np.empty(gaps.size + runs.size, dtype=np.int64)
    both[::2], both[1::2] = gaps, runs
    return both


def _bits(tensor: Tensor) -> NDArray[Any]:
    """The tensor's bytes as integers of its element's width: numpy knows no bf16."""
    array: NDArray[Any] = tensor.detach().view(BITS[tensor.element_size()]).numpy()
    return array
