"""How the rows of an item become micro-batches: what is run forward, in which shape.

Decisions depend on the rows alone, so that a unit gets the same shapes whoever runs it. Only what
some token's log-prob depends on is run: a row's tokens before its last counted one, and rows of
equal such tokens once (tries at one question often agree), their gradients adding up by themselves.
What shares a pack is decided by `runtime.policy`; bytes are moved by `kernels.pack`, once an item.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from flowgraph.kernels import Packed, PackPlan, Ragged, pack
from flowgraph.runtime.column import Int64s, bounds_of
from flowgraph.runtime.policy import MASKED_ROW, Cost, OverLong, Packs, pack_cheapest, runs_of
from flowgraph.runtime.policy.admit import Limits, admit
from flowgraph.runtime.trainer.micro_batch import MicroBatch, ranges
from flowgraph.runtime.trainer.tensors import on_device

Mask = NDArray[np.float32]


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedItem:
    """An item's packs, and the micro-batches that they are run in.

    packed: all packs, with the field `tokens`; None when no token counts.
    """

    packed: Packed | None
    micro_batches: tuple[MicroBatch, ...]

    def places(self, tokens: Int64s) -> Int64s:
        """Where flat tokens stand in the packs laid end to end, -1 for those that are not run."""
        if self.packed is None:
            return np.full_like(tokens, -1)
        return self.packed.layout.places(tokens)


def pack_pieces(
    pieces: Pieces,
    tokens: NDArray[np.int64],
    offsets: Int64s,
    mask: Mask,
    limits: PackLimits,
    *,
    visual: Int64s,
    device: torch.device,
    cost: Cost = MASKED_ROW,
) -> PackedItem:
    """Packs on `device` that hold every piece with a counted token once.

    tokens, mask: [T] of the whole item; offsets: int64 [B + 1], its rows. visual: int64 [B], see
    `cut_pieces`.
    """
    counted = np.flatnonzero(mask)
    needed = _needed(pieces, counted)
    kept = np.flatnonzero(needed)
    if not kept.size:
        return PackedItem(packed=None, micro_batches=())
    alone = visual[pieces.row[kept]] > 0
    first, same = _distinct(tokens, pieces.begin[kept], needed[kept], alone)
    lengths = needed[kept][first]
    most = limits.longest or max(int(lengths.max()), limits.micro_batch)
    packs = pack_cheapest(lengths, most=most, cost=cost)
    packed = _packed(packs, pieces, kept[first], tokens, offsets, device)
    layout = packed.layout
    at, pack_of = np.empty_like(first), np.empty_like(first)
    at[packs.order], pack_of[packs.order] = layout.target, layout.pack_of
    edges = runs_of(len(packs), limits.micro_batch // packs.cap)
    micro_batches = tuple(
        _micro_batch(packed, (a, b), pieces, (kept, at[same], pack_of[same]), counted)
        for a, b in pairwise(edges)
    )
    return PackedItem(packed=packed, micro_batches=micro_batches)


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


def _packed(
    packs: Packs,
    pieces: Pieces,
    chosen: Int64s,
    tokens: NDArray[np.int64],
    offsets: Int64s,
    device: torch.device,
) -> Packed:
    """The packs' tokens; `packs` is over the pieces `chosen`."""
    held = chosen[packs.order]
    row = pieces.row[held]
    plan = PackPlan(
        order=row,
        bounds=packs.boundaries,
        length=packs.cap,
        starts=pieces.begin[held] - offsets[row],
        sizes=packs.lengths,
    )
    bounds = on_device(offsets, "int64", torch.device("cpu"))
    return pack({"tokens": Ragged(on_device(tokens, "int64", device), bounds)}, plan)


def _micro_batch(
    packed: Packed,
    between: tuple[int, int],
    pieces: Pieces,
    placed: tuple[Int64s, Int64s, Int64s],
    counted: Int64s,
) -> MicroBatch:
    """Packs number `between`, with all pieces whose tokens stand there.

    placed: int64 [K'] of the pieces run: the piece, where its tokens begin, in which pack.
    """
    low, high = between
    kept, at, pack_of = placed
    begin_of_packs = low * packed.layout.length
    mine = np.flatnonzero((pack_of >= low) & (pack_of < high))
    members = kept[mine]
    begin, lengths = pieces.begin[members], pieces.end[members] - pieces.begin[members]
    before = bounds_of(lengths)
    # Counted tokens of the members: pieces and counted are both in the order of flat tokens.
    lower = np.searchsorted(counted, begin)
    shares = np.searchsorted(counted, pieces.end[members]) - lower
    within = counted[ranges(lower, shares)] - np.repeat(begin, shares)
    return MicroBatch(
        tokens=packed["tokens"][low:high],
        positions=packed.positions[low:high],
        segment_ids=packed.segment_ids[low:high] + 1,
        begin=begin_of_packs,
        piece_row=pieces.row[members],
        piece_tokens=lengths,
        taken=ranges(begin, lengths),
        selected=np.repeat(before[:-1], shares) + within,
        state=np.repeat(at[mine] - begin_of_packs, shares) + within - 1,
    )
