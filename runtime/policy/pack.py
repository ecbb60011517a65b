"""Best-fit-decreasing over all samples at once: the packs of one step, or of one window.

Guarantees: no pack exceeds a cap; the same input gives the same packs on every machine (integer
arithmetic and stable sorts only). Johnson's bound: at most 11/9 of the least number of packs, plus
one; on realistic lengths within 1 % of total / cap.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.runtime.policy.admit import Limits, OverLong, admit
from flowgraph.runtime.policy.packs import Ints, Packs, grouped
from flowgraph.runtime.policy.rooms import RoomTree


def pack_lengths(
    lengths: ArrayLike,
    *,
    cap: int,
    second: ArrayLike | None = None,
    second_cap: int | None = None,
    over_long: OverLong = "error",
    ids: Sequence[object] | NDArray[np.generic] | None = None,
) -> Packs:
    """Pack samples into as few packs as best-fit-decreasing finds.

    lengths: int[n] tokens; second: int[n] visual tokens (counted beside, not within, `lengths`'
    cap); cap, second_cap: what one pack may hold of each; over_long: what happens to a sample that
    exceeds a cap alone; ids: names for errors and records. Raises OverLongError naming ids,
    ValueError.
    """
    limits = Limits(cap=cap, second_cap=second_cap, over_long=over_long)
    pieces = admit(lengths, limits, second=second, ids=ids)
    bins, count = best_fit_decreasing(pieces.length, pieces.second, limits)
    packs = grouped(
        bins,
        count,
        (pieces.sample, pieces.start, pieces.length, pieces.second),
        cap=cap,
        second_cap=second_cap,
    )
    return replace(packs, dropped=pieces.dropped, cut=pieces.cut)


def best_fit_decreasing(lengths: Ints, second: Ints, limits: Limits) -> tuple[Ints, int]:
    """The pack of each piece, int64[n], and the number of packs. Pieces must fit the caps alone."""
    if not lengths.size:
        return np.zeros(0, np.int64), 0
    if limits.second_cap is None or int(second.sum()) <= limits.second_cap:
        bins, count = _one_cap(lengths, limits.cap)
    else:
        bins, count = _two_caps(lengths, second, limits.cap, limits.second_cap)
    return np.array(bins, dtype=np.int64), count


def _one_cap(lengths: Ints, cap: int) -> tuple[list[int], int]:
    """Open packs hang under their free room; `rooms` lists, sorted, the rooms that have any.

    There are at most cap + 1 rooms however many packs are open, so both the search and the
    insertion stay short, also for a million samples.
    """
    tokens = lengths.tolist()
    smallest = min(tokens)
    rooms: list[int] = []
    open_at: dict[int, list[int]] = {}
    bins = [0] * len(tokens)
    count = 0
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = tokens[piece]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            pack, room = count, cap - length
            count += 1
        else:
            room = rooms[at]
            packs = open_at[room]
            pack = packs.pop()
            if not packs:
                del rooms[at]
            room -= length
        bins[piece] = pack
        if room >= smallest:
            waiting = open_at.get(room)
            if waiting:
                waiting.append(pack)
            else:
                open_at[room] = [pack]
                insort(rooms, room)
    return bins, count


def _two_caps(lengths: Ints, second: Ints, cap: int, second_cap: int) -> tuple[list[int], int]:
    """As `_one_cap`, taking the tightest pack by tokens that also has the visual room."""
    tokens, visual = lengths.tolist(), second.tolist()
    smallest = min(tokens)
    # The scarcer of the two decides what is large; in integers: l / cap against v / second_cap.
    size = np.maximum(lengths * max(second_cap, 1), second * cap)
    rooms = RoomTree(cap, len(tokens))
    bins = [0] * len(tokens)
    count = 0
    for piece in np.argsort(-size, kind="stable").tolist():
        length, need = tokens[piece], visual[piece]
        found = rooms.take(length, need)
        if found is None:
            found = (count, cap, second_cap)
            count += 1
        pack, room, visual_room = found
        bins[piece] = pack
        if room - length >= smallest:
            rooms.add(pack, room - length, visual_room - need)
    return bins, count
