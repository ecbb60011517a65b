"""How long packed rows should be where attention looks at whole rows.

Under a mask, attention costs the square of the row, whatever the segments in it. Rows of the
longest piece's length cost least of it but may stay half empty; longer rows fill better. Which
wins is a matter of cost, and the answer depends on the lengths alone.
"""

import numpy as np
from numpy.typing import ArrayLike

from flowgraph.runtime.policy.cost import Cost
from flowgraph.runtime.policy.pack import pack_lengths
from flowgraph.runtime.policy.packs import Packs

MASKED_ROW = Cost(linear=1.0, quadratic=1.0 / 512.0)
"""Cost of a forward and backward over a row, in positions: at 512 attention costs as much as all
else. Measured with decoders of 2 x 64 and 3 x 96 on one Zen 3 core: 4096 positions take 1.5 times
as long in rows of 256 as in rows of 16, twice as long in rows of 512; shorter rows than 16 gain
nothing."""


def pack_cheapest(lengths: ArrayLike, *, most: int | None = None, cost: Cost = MASKED_ROW) -> Packs:
    """Packs in rows of the cheapest length: the longest piece's, or that doubled some times.

    lengths: int[n] tokens, n >= 1. most: that doubling may not exceed (the longest piece itself
    may). cost: of one row, padding included. `packs.cap` is the length chosen.
    """
    tokens = np.asarray(lengths, np.int64)
    longest, total = int(tokens.max()), int(tokens.sum())
    shortest_rows = pack_lengths(tokens, cap=longest)
    cheapest, chosen, length = _of_rows(cost, len(shortest_rows), longest), longest, longest
    while length < total and (most is None or 2 * length <= most):
        length *= 2
        # Rows of twice the longest piece and more come out nearly full: 1 in 50 is left over.
        estimate = _of_rows(cost, -(-total * 51 // (50 * length)), length)
        if estimate < cheapest:
            cheapest, chosen = estimate, length
    return shortest_rows if chosen == longest else pack_lengths(tokens, cap=chosen)


def _of_rows(cost: Cost, rows: int, length: int) -> float:
    return rows * (cost.linear * length + cost.quadratic * (length * length) + cost.constant)


def runs_of(count: int, size: int) -> list[int]:
    """`count` packs cut into equal runs of at most `size` (or of one): where runs begin, and end.

    Runs differ by at most one pack, so that no micro-batch is a small remainder.
    """
    runs = -(-count // max(1, size))
    return [count * i // runs for i in range(runs + 1)] if runs else [0]
