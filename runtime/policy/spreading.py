"""A number of packs that divides by the ranks, without carrying samples out of their step.

A step of 443 packs over 64 ranks gives some ranks seven packs and some six, so it takes as long as
seven full ones. Dealing the same samples as 448 packs, all of them a little less full, costs
nothing in tokens and lets every rank finish at the same time.
"""

import heapq
from dataclasses import replace

import numpy as np

from flowgraph.runtime.policy.admit import Limits
from flowgraph.runtime.policy.pack import best_fit_decreasing
from flowgraph.runtime.policy.packs import Ints, Packs, grouped

SEARCHES = 5  # packings tried for an even fill; each halves what is left of the range of caps


def spread(packs: Packs, multiple: int) -> Packs:
    """The same pieces in a number of packs that is a multiple of `multiple`, evenly filled.

    Packs again under a lower token cap, the lowest found that needs no more packs than wanted; what
    is then missing comes from splitting the heaviest packs. Pieces stay whole and caps hold. With
    fewer pieces than packs wanted, each ends in a pack of its own and the number is what it is
    (dealing then fills with FILLER). Raises ValueError for multiple < 1.
    """
    if multiple < 1:
        raise ValueError(f"expects multiple >= 1, got {multiple}")
    wanted = len(packs) + -len(packs) % multiple
    if wanted == len(packs):
        return packs
    bins, count = _lower_cap(packs, wanted)
    bins, count = _split_heaviest(bins, count, packs.lengths, wanted)
    pieces = (packs.order, packs.starts, packs.lengths, packs.second)
    return replace(
        grouped(bins, count, pieces, cap=packs.cap, second_cap=packs.second_cap),
        dropped=packs.dropped,
        cut=packs.cut,
    )


def _lower_cap(packs: Packs, wanted: int) -> tuple[Ints, int]:
    """The packing under the lowest cap found that needs at most `wanted` packs."""
    best = np.repeat(np.arange(len(packs), dtype=np.int64), np.diff(packs.boundaries))
    count = len(packs)
    even = -(-int(packs.lengths.sum()) // wanted)
    low, high = max(even, 1), packs.cap
    for _ in range(SEARCHES):
        if low >= high:
            break
        # The fill reached is within 1 % of even, so the answer lies near the low end.
        cap = low + (high - low) // 4
        bins, needed = _pack_below(packs, cap)
        if needed <= wanted:
            best, count, high = bins, needed, cap
        else:
            low = cap + 1
    return best, count


def _pack_below(packs: Packs, cap: int) -> tuple[Ints, int]:
    """Best-fit-decreasing under a cap; pieces that exceed it are alone in their packs."""
    alone = packs.lengths > cap
    limits = Limits(cap=cap, second_cap=packs.second_cap)
    rest, count = best_fit_decreasing(packs.lengths[~alone], packs.second[~alone], limits)
    bins = np.empty(packs.lengths.size, np.int64)
    bins[~alone] = rest
    bins[alone] = count + np.arange(int(alone.sum()))
    return bins, count + int(alone.sum())


def _split_heaviest(bins: Ints, count: int, lengths: Ints, wanted: int) -> tuple[Ints, int]:
    """Split the pack with the most tokens in two near equal halves until there are `wanted`."""
    bins = bins.copy()
    tokens = np.zeros(count, np.int64)
    np.add.at(tokens, bins, lengths)
    heap = [(-total, pack) for pack, total in enumerate(tokens.tolist())]
    heapq.heapify(heap)
    while count < wanted and heap:
        _, pack = heapq.heappop(heap)
        mine = np.flatnonzero(bins == pack)
        if mine.size < 2:
            continue
        longest_first = mine[np.argsort(-lengths[mine], kind="stable")]
        halves = [0, 0]
        for piece in longest_first.tolist():
            lighter = int(halves[1] < halves[0])
            halves[lighter] += int(lengths[piece])
            if lighter:
                bins[piece] = count
        if not (bins[mine] == count).any():  # all are of length 0
            bins[mine[-1]] = count
        heapq.heappush(heap, (-halves[0], pack))
        heapq.heappush(heap, (-halves[1], count))
        count += 1
    return bins, count
