"""How the rows of an item become micro-batches: what is run forward, in which shape.

Decisions depend on the rows alone, so that a unit gets the same shapes whoever runs it. Only what
some token's log-prob depends on is run: a row's tokens before its last counted one, and rows of
equal such tokens once (tries at one question often agree), their gradients adding up by themselves.
Bytes are packed on the host by index: records lie in host memory, and a gather there is 10 times
cheaper than a launch for items of a few thousand tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xxhash
from numpy.typing import NDArray

from flowgraph.runtime.column import Int64s, bounds_of
from flowgraph.runtime.policy.admit import Limits, OverLong, admit
from flowgraph.runtime.policy.pack import pack_lengths
from flowgraph.runtime.policy.packs import Packs
from flowgraph.runtime.trainer.micro_batch import MicroBatch, ranges

Mask = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCost:
    """Cost of a forward and backward over R rows of L positions, in positions.

    attention: the length at which attention costs as much as all else. Measured with decoders of
    2 x 64 and 3 x 96 on one Zen 3 core: 4096 positions take 1.5 times as long in rows of 256 as in
    rows of 16, and twice as long in rows of 512; shorter rows than 16 gain nothing.
    """

    attention: float = 512.0

    def of(self, rows: int, length: int) -> float:
        return rows * length * (1.0 + length / self.attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits:
    """longest: tokens a packed row may hold, and with it a sample; None when nothing was declared.

    over_long: what a longer sample does. micro_batch: positions of one micro-batch, unless one
    row has more.
    """

    micro_batch: int
    longest: int | None = None
    over_long: OverLong = "error"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pieces:
    """K runs of tokens that stand alone: whole rows, unless an over-long policy cut them.

    row: int64 [K], each piece's row. begin, end: int64 [K], its flat tokens.
    dropped: (row, reason) of rows that are in no piece.
    """

    row: Int64s
    begin: Int64s
    end: Int64s
    dropped: tuple[tuple[int, str], ...] = ()


def cut_pieces(
    offsets: Int64s, limits: PackLimits, *, ids: NDArray[np.int64], visual: Int64s
) -> Pieces:
    """Pieces of the rows whose tokens are parted by `offsets`, int64 [B + 1], in order.

    ids: int64 [B], samples, for messages. visual: int64 [B], placeholder tokens, which no cut may
    part from their features. Raises OverLongError when the policy gives no way on.
    """
    lengths = np.diff(offsets)
    if limits.longest is None or not lengths.size or lengths.max() <= limits.longest:
        return Pieces(row=np.arange(lengths.size), begin=offsets[:-1], end=offsets[1:])
    allowed = Limits(cap=limits.longest, over_long=limits.over_long)
    admitted = admit(lengths, allowed, second=visual, ids=ids)
    begin = offsets[:-1][admitted.sample] + admitted.start
    return Pieces(
        row=admitted.sample,
        begin=begin,
        end=begin + admitted.length,
        dropped=tuple((drop.index, drop.reason) for drop in admitted.dropped),
    )


def effective_mask(values: Mask | None, tokens: int, pieces: Pieces) -> Mask:
    """What each token counts in the loss, float32 [tokens]: `values`, by default 1.

    0 for a piece's first token, since nothing before it says how likely it is, and outside pieces.
    """
    mask = np.zeros(tokens, np.float32)
    inside = ranges(pieces.begin, pieces.end - pieces.begin)
    mask[inside] = 1.0 if values is None else values[inside]
    mask[pieces.begin[pieces.end > pieces.begin]] = 0.0
    return mask


def pack_pieces(
    pieces: Pieces,
    tokens: NDArray[np.int64],
    mask: Mask,
    limits: PackLimits,
    *,
    visual: Int64s,
    cost: RowCost | None = None,
) -> tuple[MicroBatch, ...]:
    """Micro-batches that hold every piece with a counted token once.

    tokens, mask: [T] of the whole item. visual: int64 [B], see `cut_pieces`.
    """
    counted = np.flatnonzero(mask)
    needed = _needed(pieces, counted)
    kept = np.flatnonzero(needed)
    if not kept.size:
        return ()
    alone = visual[pieces.row[kept]] > 0
    first, same = _distinct(tokens, pieces.begin[kept], needed[kept], alone)
    packs = _packed(needed[kept][first], limits, cost or RowCost())
    count = -(-len(packs) // max(1, limits.micro_batch // packs.cap))
    edges = [len(packs) * i // count for i in range(count + 1)]
    pack_of = np.empty(first.size, np.int64)
    pack_of[packs.order] = np.repeat(np.arange(len(packs)), np.diff(packs.boundaries))
    return tuple(
        _laid_out(packs, (a, b), pieces, kept, (first, same, pack_of), counted)
        for a, b in pairwise(edges)
    )


def _needed(pieces: Pieces, counted: Int64s) -> Int64s:
    """How many of its first tokens each piece's counted ones depend on: int64 [K]."""
    if not counted.size:
        return np.zeros(pieces.begin.size, np.int64)
    last = counted[np.maximum(np.searchsorted(counted, pieces.end) - 1, 0)]
    needed: Int64s = np.where((last >= pieces.begin) & (last < pieces.end), last - pieces.begin, 0)
    return needed


def _distinct(
    tokens: NDArray[np.int64], begin: Int64s, needed: Int64s, alone: NDArray[np.bool_]
) -> tuple[Int64s, Int64s]:
    """Pieces of equal needed tokens: the first of each kind, int64 [U], and each one's kind, [K].

    Those `alone` have features among their tokens, and so are their own kind.
    """
    kinds: dict[bytes | int, int] = {}
    first: list[int] = []
    same: list[int] = []
    ends = (begin + needed).tolist()
    for place, (a, b, own) in enumerate(zip(begin.tolist(), ends, alone.tolist(), strict=True)):
        kind = kinds.setdefault(
            place if own else xxhash.xxh3_128_digest(tokens[a:b].data), len(first)
        )
        if kind == len(first):
            first.append(place)
        same.append(kind)
    return np.array(first, np.int64), np.array(same, np.int64)


def _packed(lengths: Int64s, limits: PackLimits, cost: RowCost) -> Packs:
    """Packs in rows of the cheapest length: from the longest piece's, doubling, to the cap."""
    longest, total = int(lengths.max()), int(lengths.sum())
    best = pack_lengths(lengths, cap=longest)
    cheapest, chosen, length = cost.of(len(best), longest), longest, longest
    most = limits.longest or max(longest, limits.micro_batch)
    while length < total and 2 * length <= most:
        length *= 2
        # Rows of twice the longest piece and more come out nearly full: 1 in 50 is left over.
        estimate = cost.of(-(-total * 51 // (50 * length)), length)
        if estimate < cheapest:
            cheapest, chosen = estimate, length
    return best if chosen == longest else pack_lengths(lengths, cap=chosen)


def _laid_out(
    packs: Packs,
    between: tuple[int, int],
    pieces: Pieces,
    kept: Int64s,
    kinds: tuple[Int64s, Int64s, Int64s],
    counted: Int64s,
) -> MicroBatch:
    """Packs number `between` as one micro-batch, with all pieces of the kinds that they hold."""
    low, high = between
    first, same, pack_of = kinds
    bounds = packs.boundaries[low : high + 1]
    held = slice(int(bounds[0]), int(bounds[-1]))
    kind, sizes = packs.order[held], packs.lengths[held]
    row = np.repeat(np.arange(high - low), np.diff(bounds))
    ends = bounds_of(sizes)
    # Tokens before the kind, less those before its row: its place within the row.
    at = row * packs.cap + ends[:-1] - ends[bounds[:-1] - bounds[0]][row]
    at_of = np.zeros(first.size, np.int64)
    at_of[kind] = at
    mine = np.flatnonzero((pack_of[same] >= low) & (pack_of[same] < high))
    members = kept[mine]
    begin, lengths = pieces.begin[members], pieces.end[members] - pieces.begin[members]
    before = bounds_of(lengths)
    # Counted tokens of the members: pieces and counted are both in the order of flat tokens.
    lower = np.searchsorted(counted, begin)
    shares = np.searchsorted(counted, pieces.end[members]) - lower
    chosen = counted[ranges(lower, shares)]
    within = chosen - np.repeat(begin, shares)
    return MicroBatch(
        rows=high - low,
        length=packs.cap,
        source=ranges(pieces.begin[kept[first[kind]]], sizes),
        target=ranges(at, sizes),
        segment=np.repeat(np.arange(1, sizes.size + 1, dtype=np.int32), sizes),
        within=ranges(np.zeros_like(sizes), sizes),
        piece_row=pieces.row[members],
        piece_tokens=lengths,
        taken=ranges(begin, lengths),
        selected=np.repeat(before[:-1], shares) + within,
        state=np.repeat(at_of[same[mine]], shares) + within - 1,
    )
