"""A micro-batch: some packs of an item, and what a loss sees of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.runtime.column import Int64s, bounds_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """Two layouts of the same tokens. Flat tokens are those of the item, row after row.

    Forward, over R packs of L positions, on the device: tokens, positions: int64 [R, L].
    segment_ids: int32 [R, L], from 1 within each pack, 0 on padding. begin: where these packs begin
    among the positions of all the item's packs laid end to end.

    Loss, over T tokens of K pieces (rows, unless they were cut), piece after piece, no padding:
    piece_row, piece_tokens: int64 [K], the item's row and the tokens of each. taken: int64 [T], the
    flat token, rising. selected: int64 [S], rising, which of the T count. state: int64 [S], the
    place in R * L of the state that each is predicted from.
    """

    tokens: Tensor
    positions: Tensor
    segment_ids: Tensor
    begin: int
    piece_row: Int64s
    piece_tokens: Int64s
    taken: Int64s
    selected: Int64s
    state: Int64s

    def within(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """Of places in all packs laid end to end, those in these packs: which, and where in R * L.

        -1 is nowhere.
        """
        here = np.flatnonzero((places >= self.begin) & (places < self.begin + self.tokens.numel()))
        return here, places[here] - self.begin

    def row_of_token(self) -> Int64s:
        """The item's row of each token of the loss: int64 [T]."""
        return np.repeat(self.piece_row, self.piece_tokens)

    def piece_of_token(self) -> NDArray[np.int32]:
        """The number of each token's piece, from 1: int32 [T]."""
        count = self.piece_row.size
        return np.repeat(np.arange(1, count + 1, dtype=np.int32), self.piece_tokens)


def ranges(starts: Int64s, sizes: Int64s) -> Int64s:
    """The numbers of all runs `start .. start + size`, one run after another."""
    bounds = bounds_of(sizes)
    return np.repeat(starts - bounds[:-1], sizes) + np.arange(bounds[-1])
