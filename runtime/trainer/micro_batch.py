"""A micro-batch as addresses: what runs forward in [R, L], and what a loss sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from flowgraph.runtime.column import Int64s, bounds_of

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """Two layouts of the same tokens. Flat tokens are those of the item, row after row.

    Forward, over N tokens in R rows of L positions: source, target, within: int64 [N], the flat
    token, its place in R * L, its number within its segment. segment: int32 [N], from 1, one number
    a segment of the micro-batch.

    Loss, over T tokens of K pieces (rows, unless they were cut), piece after piece, no padding:
    piece_row, piece_tokens: int64 [K], the item's row and the tokens of each. taken: int64 [T], the
    flat token. selected: int64 [S], rising, which of the T count. state: int64 [S], the place in
    R * L of the state that each is predicted from.
    """

    rows: int
    length: int
    source: Int64s
    target: Int64s
    segment: NDArray[np.int32]
    within: Int64s
    piece_row: Int64s
    piece_tokens: Int64s
    taken: Int64s
    selected: Int64s
    state: Int64s

    def packed(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Values [N] of the forward's tokens at their places: [R, L], 0 on padding."""
        everywhere: NDArray[Scalar] = np.zeros(self.rows * self.length, values.dtype)
        everywhere[self.target] = values
        return everywhere.reshape(self.rows, self.length)

    def repeated(self, values: NDArray[Scalar]) -> NDArray[Scalar]:
        """Values of the item's rows at every token of the loss: [T, ...]."""
        return np.repeat(values[self.piece_row], self.piece_tokens, axis=0)

    def segment_ids(self) -> NDArray[np.int32]:
        """The number of each token's piece, from 1: int32 [T]."""
        count = self.piece_row.size
        return np.repeat(np.arange(1, count + 1, dtype=np.int32), self.piece_tokens)


def ranges(starts: Int64s, sizes: Int64s) -> Int64s:
    """The numbers of all runs `start .. start + size`, one run after another."""
    bounds = bounds_of(sizes)
    return np.repeat(starts - bounds[:-1], sizes) + np.arange(bounds[-1])
