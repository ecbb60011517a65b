"""Evening out loads by swapping items between ranks, for one cost or two at once.

A swap keeps every rank's count, so it may follow any dealing. Guarantees: the potential (sum over
ranks and costs of the squared deviation from the mean) falls with each swap, so it ends; loads are
int64, so every machine takes the same swaps.
"""

import numpy as np
from numpy.typing import NDArray

from flowgraph.runtime.policy.packs import Ints

Floats = NDArray[np.float64]
COLUMNS = 24  # items of a rank looked at in one turn; another selection in the next
PAIR_CELLS = 16384  # item pairs looked at in one turn: the arrays stay in the cache
GOOD_ENOUGH = 0.05  # of the tolerance: with 1 %, loads within 0.05 %, below any clock's noise
PATIENCE = 16  # turns without a lower maximum before giving up: the heaviest item may forbid more


def even_out(
    slots: Ints, costs: Ints, *, fillers_from: int, rounds: int, tolerance: Floats
) -> None:
    """Swap items between ranks, in place, until loads are even or `rounds` are over.

    slots: int64[ranks, width], item numbers; those from `fillers_from` on are fillers, at most one
    a row before and after. costs: int64[items, kinds], 0 for fillers; tolerance: float64[kinds],
    what one kind's excess is measured in.
    """
    ranks, width = slots.shape
    if ranks < 2 or width < 2:
        return
    loads = costs[slots].sum(axis=1)
    mean = np.maximum(loads.sum(axis=0) / ranks, 1.0)
    scale = 1.0 / (mean * tolerance)
    seen = min(width, COLUMNS)
    spaced = np.arange(seen) * width // seen
    pairs = max(1, min(ranks // 2, PAIR_CELLS // (seen * seen)))
    least, since = np.inf, 0
    for turn in range(rounds):
        excess = (loads - mean) * scale
        worst = float(excess.max())
        least, since = (worst, 0) if worst < 0.99 * least else (least, since + 1)
        if worst <= GOOD_ENOUGH or since > PATIENCE:
            return
        high, low = _opposites(excess, turn, pairs)
        columns = (spaced + turn) % width
        gain = _gains(
            costs, slots[high][:, columns], slots[low][:, columns], loads, high, low, scale
        )
        _forbid_second_filler(gain, slots, high, low, columns, fillers_from)
        _swap_best(gain, slots, costs, loads, high, low, columns)


def _opposites(excess: Floats, turn: int, pairs: int) -> tuple[Ints, Ints]:
    """Ranks to swap between: the fullest with the emptiest, by each kind of cost in turn."""
    kinds = excess.shape[1]
    key = excess[:, turn % kinds] if turn % (kinds + 1) < kinds else np.abs(excess).max(axis=1)
    order = np.argsort(-key, kind="stable").astype(np.int64)
    # Shift the partners from turn to turn: the same two ranks may have nothing to swap.
    high, rest = order[:pairs], order[pairs:]
    shift = turn // (kinds + 1) % max(1, rest.size - pairs + 1)
    return high, np.roll(rest[::-1], -shift)[:pairs]


def _gains(
    costs: Ints, mine: Ints, theirs: Ints, loads: Ints, high: Ints, low: Ints, scale: Floats
) -> Floats:
    """float64[pairs, seen, seen]: the change of the potential, halved, for each possible swap.

    Moving d from high to low changes the two squares' sum by 2 * ((half - d)^2 - half^2), where
    half is half the difference of their loads.
    """
    gain = np.zeros((*mine.shape, theirs.shape[1]))
    for kind, unit in enumerate(scale):
        half = (loads[high, kind] - loads[low, kind]) * (0.5 * unit)
        left = (costs[mine, kind] * unit - half[:, None])[:, :, None]
        left = left - (costs[theirs, kind] * unit)[:, None, :]
        gain += left * left
        gain -= (half * half)[:, None, None]
    return gain


def _forbid_second_filler(
    gain: Floats, slots: Ints, high: Ints, low: Ints, columns: Ints, fillers_from: int
) -> None:
    """An item for a filler moves the filler: not into a row that has one, or counts would part."""
    if fillers_from > slots.size - 1:
        return
    filler_high, filler_low = slots[high] >= fillers_from, slots[low] >= fillers_from
    both = np.logical_and(filler_high.any(axis=1), filler_low.any(axis=1))[:, np.newaxis]
    gain[both & filler_high[:, columns]] = 0.0
    gain.transpose(0, 2, 1)[both & filler_low[:, columns]] = 0.0


def _swap_best(
    gain: Floats, slots: Ints, costs: Ints, loads: Ints, high: Ints, low: Ints, columns: Ints
) -> None:
    """For each pair of ranks make the one swap that evens it out most, if any does."""
    flat = gain.reshape(high.size, -1)
    best = flat.argmin(axis=1)
    better = np.flatnonzero(flat[np.arange(high.size), best] < -1e-9)
    high, low = high[better], low[better]
    at_high, at_low = (columns[at] for at in np.divmod(best[better], columns.size))
    mine, theirs = slots[high, at_high], slots[low, at_low]
    slots[high, at_high], slots[low, at_low] = theirs, mine
    moved = costs[mine] - costs[theirs]
    loads[high] -= moved
    loads[low] += moved
