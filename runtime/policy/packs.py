"""The packing plan: which piece of which sample lies in which pack, and what was left out."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
LeftOutReason = Literal["over-long", "over-second-cap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A sample in no pack. `index` is its position in the input, `ident` the caller's name."""

    index: int
    ident: object
    length: int
    second: int
    reason: LeftOutReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A sample that is not in its packs in one piece: `kept` tokens in `pieces` pieces."""

    index: int
    ident: object
    length: int
    kept: int
    pieces: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packs:
    """Pieces in pack order. Pack p holds the pieces boundaries[p] to boundaries[p + 1].

    A piece is a whole sample unless the over-long policy cut it. Every sample of the input is in
    exactly one of: one piece of the whole length, `cut`, `dropped`; for the streaming packers, over
    all the Packs that they return.
    """

    cap: int  # tokens a pack may hold
    second_cap: int | None = None  # visual tokens a pack may hold
    order: Ints  # [pieces] index of the sample in the input (in all pushes so far, when streaming)
    starts: Ints  # [pieces] the piece's first token within its sample
    lengths: Ints  # [pieces] tokens
    second: Ints  # [pieces] visual tokens, all zero where none were given
    boundaries: Ints  # [packs + 1]
    dropped: tuple[Dropped, ...] = ()
    cut: tuple[Cut, ...] = ()

    def __len__(self) -> int:
        """The number of packs."""
        return self.boundaries.size - 1

    @property
    def tokens(self) -> Ints:
        """Tokens in each pack, int64[packs]."""
        return self.sums(self.lengths)

    @property
    def fill(self) -> float:
        """Tokens held over tokens of room; 1.0 without packs."""
        return int(self.lengths.sum()) / (len(self) * self.cap) if len(self) else 1.0

    def sums(self, values: Ints) -> Ints:
        """Sum of values int64[pieces] over each pack, int64[packs]; exact."""
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(values, dtype=np.int64)])
        per_pack: Ints = np.diff(running[self.boundaries])
        return per_pack

    def members(self, pack: int) -> Ints:
        """The samples of one pack, int64[pieces of that pack]."""
        return self.order[self.boundaries[pack] : self.boundaries[pack + 1]]


def grouped(
    bins: Ints,
    count: int,
    pieces: tuple[Ints, Ints, Ints, Ints],
    *,
    cap: int,
    second_cap: int | None,
) -> Packs:
    """Packs from bins int64[pieces], each piece's pack in 0..count.

    pieces: (sample, start, length, second), int64[pieces] each; a pack keeps their order.
    """
    by_bin = np.argsort(bins, kind="stable")
    boundaries = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(bins, minlength=count), out=boundaries[1:])
    sample, start, length, second = (column[by_bin] for column in pieces)
    return Packs(
        cap=cap,
        second_cap=second_cap,
        order=sample,
        starts=start,
        lengths=length,
        second=second,
        boundaries=boundaries,
    )
