"""Dealing to ranks: equal counts, near-equal loads, one cost or two, groups whole, no empty rank.

Method: longest first in rounds (each round gives every rank one item, the longest to the rank with
the least load), then swaps. Rounds give equal counts by construction; a rank with nothing to do
gets FILLER, so that every rank runs the same number of micro-batches and collectives. Determinism:
costs become integers before any comparison, ties go to the lower index. Source:
longest-processing-time-first with cardinality constraints (Dell'Amico and Martello, 2001).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.runtime.policy.packs import Ints
from flowgraph.runtime.policy.swaps import Floats, even_out

FILLER = -1
Remainder = Literal["filler", "carry"]

LOAD_UNITS = 1 << 24  # the mean load of a rank in integer units
SWAP_ROUNDS = 120
TOLERANCE = (0.01, 0.02)  # relative worth of an excess in the first and the second cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Who does what. Every item is in exactly one slot or in `carried`."""

    slots: Ints  # [ranks, width] item numbers, FILLER at the end of a row; longest first
    loads: Floats  # [ranks, kinds of cost]
    carried: Ints  # items kept for the next step, in input order

    def __iter__(self) -> Iterator[Ints]:
        """Each rank's items, fillers left out."""
        return (row[row != FILLER] for row in self.slots)

    @property
    def counts(self) -> Ints:
        """Items of each rank, int64[ranks]."""
        counts: Ints = (self.slots != FILLER).sum(axis=1, dtype=np.int64)
        return counts

    @property
    def imbalance(self) -> Floats:
        """Largest load over mean load, float64[kinds]; 1.0 where there is no load."""
        mean = self.loads.mean(axis=0)
        return np.where(mean > 0, self.loads.max(axis=0) / np.where(mean > 0, mean, 1.0), 1.0)


def deal(
    costs: ArrayLike,
    ranks: int,
    *,
    groups: Sequence[object] | NDArray[np.generic] | None = None,
    second: ArrayLike | None = None,
) -> Deal:
    """Deal all items. Counts differ by at most one, and the smaller rows end in FILLER.

    costs, second: float[n], >= 0. groups: one label an item; items with equal labels go to one
    rank. Then the number of groups per rank differs by at most one (of items, only if groups are of
    one size), rows are padded with FILLER to the longest, and a row lists its groups one after
    another. Raises ValueError for ranks < 1, negative or non-finite costs, mismatched sizes.
    """
    table = _table(costs, second)
    if groups is None:
        return _deal_units(table, ranks)
    if len(groups) != len(table):
        raise ValueError(f"expects a group for each of {len(table)} items, got {len(groups)}")
    numbers: dict[object, int] = {}
    unit = np.array([numbers.setdefault(label, len(numbers)) for label in groups], np.int64)
    whole: Floats = np.stack(
        [np.bincount(unit, column, minlength=len(numbers)) for column in table.T],
        axis=1,
        dtype=np.float64,
    ).reshape(len(numbers), table.shape[1])
    by_group = _deal_units(whole, ranks)
    members = np.argsort(unit, kind="stable")
    ends = np.cumsum(np.bincount(unit, minlength=len(numbers)))
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    rows = [
        np.concatenate([members[starts[g] : ends[g]] for g in row.tolist()] or [members[:0]])
        for row in by_group
    ]
    slots = np.full((ranks, max(1, *(row.size for row in rows))), FILLER, np.int64)
    for rank, row in enumerate(rows):
        slots[rank, : row.size] = row
    return Deal(slots=slots, loads=by_group.loads, carried=by_group.carried)


def deal_packs(
    costs: ArrayLike,
    ranks: int,
    *,
    second: ArrayLike | None = None,
    remainder: Remainder = "filler",
) -> Deal:
    """Deal whole packs (or micro-batches): every row has the same number of slots.

    costs, second: float[packs], the packs' costs for the backbone and the encoder. Where the packs
    do not divide by the ranks, the remainder="filler" ends some rows in FILLER (exact step
    membership), and "carry" leaves the last packs of the input for the next step, in `carried`, so
    the caller orders packs by what must go now. With fewer packs than ranks filler is always used:
    no pack could go otherwise. Raises ValueError as `deal`.
    """
    table = _table(costs, second)
    if remainder not in ("filler", "carry"):
        raise ValueError(f"remainder: expects 'filler' or 'carry', got {remainder!r}")
    kept = len(table)
    if remainder == "carry" and kept > ranks >= 1:
        kept -= kept % ranks
    dealt = _deal_units(table[:kept], ranks)
    return Deal(
        slots=dealt.slots, loads=dealt.loads, carried=np.arange(kept, len(table), dtype=np.int64)
    )


def heaviest_bound(costs: ArrayLike, ranks: int) -> float:
    """No deal with equal counts has a smaller max/mean. costs: float[n], n divisible by ranks.

    The heaviest item's rank also holds n / ranks - 1 others, at best the lightest.
    """
    ordered = np.sort(np.asarray(costs, dtype=np.float64))
    each = ordered.size // ranks
    mean = float(ordered.sum()) / ranks
    if not each or mean <= 0:
        return 1.0
    return max(1.0, float(ordered[-1] + ordered[: each - 1].sum()) / mean)


def _deal_units(table: Floats, ranks: int) -> Deal:
    """table: float64[n, kinds]. Rounds, then swaps, on integer costs."""
    if ranks < 1:
        raise ValueError(f"expects ranks >= 1, got {ranks}")
    count, kinds = table.shape
    width = max(1, -(-count // ranks))
    costs = np.zeros((ranks * width, kinds), np.int64)  # the items beyond count are fillers
    costs[:count] = _integers(table, ranks)
    slots = _rounds(costs, count, ranks)
    tolerance = np.array(TOLERANCE[:kinds])
    even_out(slots, costs, fillers_from=count, rounds=SWAP_ROUNDS, tolerance=tolerance)
    slots = _longest_first(slots, costs, count)
    slots[slots >= count] = FILLER
    padded = np.concatenate([table, np.zeros((1, kinds))])
    loads = np.stack([[math.fsum(padded[row, k]) for k in range(kinds)] for row in slots])
    return Deal(slots=slots, loads=loads, carried=np.zeros(0, np.int64))


def _sizes(costs: Ints, count: int) -> Floats:
    """One figure an item: the sum of its shares in each cost's total; fillers are below all."""
    shares: Floats = (costs / np.maximum(costs.sum(axis=0), 1)).sum(axis=1)
    shares[count:] = -1.0
    return shares


def _longest_first(slots: Ints, costs: Ints, count: int) -> Ints:
    """Sort each row: what ranks run at the same time is then of like length; fillers end a row."""
    order = np.argsort(-_sizes(costs, count)[slots], axis=1, kind="stable")
    return np.take_along_axis(slots, order, axis=1)


def _rounds(costs: Ints, count: int, ranks: int) -> Ints:
    """Longest first: each round gives every rank one item, the longest to the least loaded."""
    size = _sizes(costs, count)
    order = np.argsort(-size, kind="stable").reshape(-1, ranks)
    load = np.zeros(ranks)
    slots = np.empty((ranks, order.shape[0]), np.int64)
    for turn, items in enumerate(order):
        by_load = np.argsort(load, kind="stable")
        slots[by_load, turn] = items
        load[by_load] += np.maximum(size[items], 0.0)
    return slots


def _integers(table: Floats, ranks: int) -> Ints:
    """Costs in integer units, LOAD_UNITS to the mean load of a rank, the same on every machine."""
    units = np.zeros(table.shape, np.int64)
    for kind, column in enumerate(table.T):
        total = math.fsum(column)  # correctly rounded, unlike a sum whose order a CPU chooses
        if total > 0:
            units[:, kind] = np.rint(column / total * (LOAD_UNITS * ranks)).astype(np.int64)
    return units


def _table(costs: ArrayLike, second: ArrayLike | None) -> Floats:
    """float64[n, kinds] of checked costs."""
    columns = [np.asarray(column, np.float64) for column in (costs, second) if column is not None]
    if any(column.ndim != 1 or column.shape != columns[0].shape for column in columns):
        raise ValueError(f"expects vectors of one size, got {[c.shape for c in columns]}")
    table = np.stack(columns, axis=1)
    wrong = np.flatnonzero(~(np.isfinite(table) & (table >= 0)).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"expects finite costs >= 0; item {wrong[0]} has {table[wrong[0]].tolist()}"
        )
    return table
