"""Where every sample's rows go in a pack: a plan's decisions turned into addresses.

All arithmetic is int64 on the host (numpy): a pack of more than 2^31 elements is legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackPlan:
    """Which samples stand in which pack, in which order.

    order: int64 [S], indices of samples. Samples not named are left out.
    bounds: int64 [P + 1], pack `p` holds `order[bounds[p]:bounds[p + 1]]`; an empty pack is legal.
    length: rows of every pack, or None for the longest pack's, rounded up to `align`.
    align: every segment starts at a multiple of it within its pack.
    starts, sizes: int64 [S], what is taken of each sample: `sizes` rows from its row `starts`; both
    None for whole samples. A sample may be named again where no row is taken twice.

    Raises ValueError when the arrays are not that.
    """

    order: Int64s
    bounds: Int64s
    length: int | None = None
    align: int = 1
    starts: Int64s | None = None
    sizes: Int64s | None = None

    def __post_init__(self) -> None:
        if self.align < 1:
            raise ValueError(f"align: expects at least 1, got {self.align}")
        if self.bounds.ndim != 1 or self.bounds.size < 1 or self.order.ndim != 1:
            raise ValueError("a plan expects order [S] and bounds [P + 1]")
        falls = self.bounds[1:] < self.bounds[:-1]
        if self.bounds[0] != 0 or self.bounds[-1] != self.order.size or falls.any():
            raise ValueError(f"bounds: expects to rise from 0 to {self.order.size}")
        if self.order.size and self.order.min() < 0:
            raise ValueError(f"order: negative sample {int(self.order.min())}")
        if self.starts is not None or self.sizes is not None:
            self._check_pieces()
            return
        ranked = np.sort(self.order)
        twice = ranked[1:] == ranked[:-1]
        if twice.any():
            raise ValueError(f"order: sample {int(ranked[1:][twice][0])} is named twice")

    @classmethod
    def of(
        cls, packs: Sequence[Sequence[int]], *, length: int | None = None, align: int = 1
    ) -> PackPlan:
        """A plan from lists of sample indices, one list a pack."""
        order = np.array([sample for pack in packs for sample in pack], dtype=np.int64)
        bounds = np.cumsum([0, *(len(pack) for pack in packs)], dtype=np.int64)
        return cls(order=order, bounds=bounds, length=length, align=align)

    def layout(self, lengths: Tensor) -> PackLayout:
        """Addresses for samples of these lengths (int64 [B], host) that lie behind one another.

        Raises ValueError, naming the pack or the sample, when one does not fit `length`.
        """
        samples = lengths.shape[0]
        table = np.zeros(samples + 1, np.int64)
        np.cumsum(lengths.numpy(), out=table[1:])
        if self.order.size and int(self.order.max()) >= samples:
            raise ValueError(f"order: sample {int(self.order.max())} of {samples} samples")
        source = table[self.order]
        sizes = table[self.order + 1] - source
        if self.starts is not None and self.sizes is not None:
            outside = self.starts + self.sizes > sizes
            if outside.any():
                worst = int(outside.argmax())
                raise ValueError(
                    f"sizes: sample {int(self.order[worst])} has {int(sizes[worst])} rows, row "
                    f"{int(self.starts[worst] + self.sizes[worst]) - 1} is asked for"
                )
            sizes, source = self.sizes, source + self.starts
        room = sizes if self.align == 1 else -(-sizes // self.align) * self.align
        before = np.zeros(room.size + 1, np.int64)
        np.cumsum(room, out=before[1:])
        counts = self.bounds[1:] - self.bounds[:-1]
        pack_of = np.repeat(np.arange(counts.size), counts)
        start = before[:-1] - np.repeat(before[self.bounds[:-1]], counts)
        length = self._length(start + sizes, pack_of)
        return PackLayout(
            order=self.order,
            pack_of=pack_of,
            source=source,
            start=start,
            sizes=sizes,
            packs=int(counts.size),
            length=length,
            offsets=torch.from_numpy(table),
        )

    def _check_pieces(self) -> None:
        starts, sizes = self.starts, self.sizes
        if starts is None or sizes is None or not starts.shape == sizes.shape == self.order.shape:
            raise ValueError(f"starts, sizes: expects both, [{self.order.size}]")
        if self.order.size and (starts.min() < 0 or sizes.min() < 0):
            raise ValueError("starts, sizes: expects none below 0")
        ranked = np.lexsort((starts + sizes, starts, self.order))
        same = self.order[ranked][1:] == self.order[ranked][:-1]
        shared = same & ((starts + sizes)[ranked][:-1] > starts[ranked][1:])
        if shared.any():
            sample = int(self.order[ranked][1:][shared][0])
            raise ValueError(f"order: rows of sample {sample} are taken twice")

    def _length(self, ends: Int64s, pack_of: Int64s) -> int:
        longest = int(ends.max()) if ends.size else 0
        if self.length is None:
            return -(-longest // self.align) * self.align
        if longest > self.length:
            worst = int(ends.argmax())
            raise ValueError(
                f"pack {int(pack_of[worst])}: sample {int(self.order[worst])} ends at row "
                f"{longest}, past the pack's length {self.length}"
            )
        return self.length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackLayout:
    """Where S samples stand in P packs of L rows; what `pack` and `unpack` follow.

    order, pack_of, source, start, sizes: int64 [S] in the plan's order: the sample, its pack, its
    first row in the ragged values, its first row within the pack, its number of rows (of what the
    plan takes of the sample).
    offsets: int64 [B + 1] of the ragged fields that the layout was made for, from 0.
    """

    order: Int64s
    pack_of: Int64s
    source: Int64s
    start: Int64s
    sizes: Int64s
    packs: int
    length: int
    offsets: Tensor

    @property
    def rows(self) -> int:
        """Rows of all packs together, P * L."""
        return self.packs * self.length

    @property
    def target(self) -> Int64s:
        """First row of each sample in the packs laid end to end: int64 [S]."""
        return self.pack_of * self.length + self.start

    def gaps(self) -> tuple[Int64s, Int64s]:
        """First row and number of rows of every run of padding, in order (none is empty)."""
        target = self.target
        ends = np.concatenate([target + self.sizes, np.arange(self.packs) * self.length])
        starts = np.concatenate([target, (np.arange(self.packs) + 1) * self.length])
        begin = np.sort(ends, kind="stable")
        count = np.sort(starts, kind="stable") - begin
        return begin[count > 0], count[count > 0]

    def cu_seqlens(self) -> Tensor:
        """Boundaries of segments over the packs laid end to end: int64 [K + 1], host.

        From 0 to P * L; every run of padding is a segment of its own, so that a variable-length
        attention never lets a sample see padding; a sample of no rows is a segment of no rows.
        """
        begin, count = self.gaps()
        starts = np.concatenate([self.target, begin])
        sizes = np.concatenate([self.sizes, count])
        # a 0-length sample and what follows it share a start: the empty one comes first
        ranked = np.lexsort((sizes, starts))
        ends = (starts + sizes)[ranked]
        return torch.from_numpy(np.concatenate([np.zeros(1, np.int64), ends]))

    def max_seqlen(self) -> int:
        """Rows of the longest segment, padding included (what variable-length attention asks)."""
        _, count = self.gaps()
        return int(max(self.sizes.max(initial=0), count.max(initial=0)))

    def segments(self) -> Int64s:
        """The number of each sample within its pack, from 0: int64 [S]."""
        counts = np.bincount(self.pack_of, minlength=self.packs)
        return np.arange(self.order.size) - np.repeat(np.cumsum(counts) - counts, counts)

    def coarser(self, rows: int) -> PackLayout:
        """The layout of results that have one row for every `rows` of these, next to one another.

        For `unpack` behind a module that merges rows. ValueError where a segment would be torn.
        """
        parts = (self.source, self.start, self.sizes, np.array([self.length]))
        if any((part % rows).any() for part in parts):
            raise ValueError(f"expects segments that start and end at multiples of {rows} rows")
        return PackLayout(
            order=self.order,
            pack_of=self.pack_of,
            source=self.source // rows,
            start=self.start // rows,
            sizes=self.sizes // rows,
            packs=self.packs,
            length=self.length // rows,
            offsets=self.offsets // rows,
        )

    def places(self, rows: Int64s) -> Int64s:
        """Where rows of the ragged values stand in the packs laid end to end: int64, like `rows`.

        -1 for rows that the plan left out.
        """
        filled = np.flatnonzero(self.sizes)
        if not filled.size:
            return np.full_like(rows, -1)
        ranked = filled[np.argsort(self.source[filled], kind="stable")]
        nearest = np.searchsorted(self.source[ranked], rows, side="right") - 1
        segment = ranked[np.maximum(nearest, 0)]
        within = rows - self.source[segment]
        held = (nearest >= 0) & (within < self.sizes[segment])
        found: Int64s = np.where(held, self.target[segment] + within, -1)
        return found
