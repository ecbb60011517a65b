"""Packing a stream window by window; what fits badly waits for later windows, up to an age limit.

Guarantees: every admitted piece is returned once; none waits for more than `age_limit` windows; at
most `hold` packs' worth of pieces wait, so memory is bounded by cap * hold tokens' records; the
same pushes give the same packs on every machine, also when a packer is rebuilt from `held` in
between.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.runtime.policy.admit import Limits, OverLong, admit
from flowgraph.runtime.policy.pack import best_fit_decreasing
from flowgraph.runtime.policy.packs import Ints, Packs, grouped


def _nothing() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Pieces that wait, one column each, and how many samples were pushed before: a checkpoint."""

    pushed: int = 0
    sample: Ints = field(default_factory=_nothing)
    start: Ints = field(default_factory=_nothing)
    length: Ints = field(default_factory=_nothing)
    second: Ints = field(default_factory=_nothing)
    age: Ints = field(default_factory=_nothing)  # windows waited


class WindowPacker:
    """Best-fit-decreasing over each window together with what earlier windows left over.

    A pack that is not `finished` full is taken apart and its pieces compete again in the next
    window: this fills better than topping up half-full packs, and large pieces get first choice
    again. Widening a step's membership by a window is a declared relaxation; within a step use
    pack_lengths.
    """

    def __init__(
        self,
        *,
        cap: int,
        second_cap: int | None = None,
        over_long: OverLong = "error",
        age_limit: int = 5,
        hold: int = 64,
        finished: float = 0.999,
        held: Held | None = None,
    ) -> None:
        """cap, second_cap: tokens and visual tokens a pack may hold; age_limit: windows a piece may
        wait (0: every push flushes); hold: most packs that may wait; finished: the share of either
        cap from which a pack goes at once; held: the state to go on from.
        """
        if age_limit < 0 or hold < 0 or not 0 < finished <= 1:
            raise ValueError(f"expects age_limit, hold >= 0, 0 < finished <= 1, got {finished=}")
        self._limits = Limits(cap=cap, second_cap=second_cap, over_long=over_long)
        self._age_limit = age_limit
        self._hold = hold
        self._finished = finished
        self._held = held or Held()

    @property
    def held(self) -> Held:
        """What waits now; hand it to a new packer to go on from here."""
        return self._held

    def push(
        self,
        lengths: ArrayLike,
        *,
        second: ArrayLike | None = None,
        ids: Sequence[object] | NDArray[np.generic] | None = None,
    ) -> Packs:
        """Take one window, return the packs that go. `order` counts samples from the first push.

        Arguments and errors as pack_lengths; after an error the packer is as before the push.
        """
        old = self._held
        new = admit(lengths, self._limits, second=second, ids=ids, first=old.pushed)
        pool = Held(
            pushed=old.pushed + np.asarray(lengths).size,
            sample=np.concatenate([old.sample, new.sample]),
            start=np.concatenate([old.start, new.start]),
            length=np.concatenate([old.length, new.length]),
            second=np.concatenate([old.second, new.second]),
            age=np.concatenate([old.age, np.zeros(new.sample.size, np.int64)]),
        )
        bins, count = best_fit_decreasing(pool.length, pool.second, self._limits)
        goes = self._goes(pool, bins, count)
        return replace(self._emit(pool, bins, goes), dropped=new.dropped, cut=new.cut)

    def flush(self) -> Packs:
        """Return everything that waits, as packs."""
        bins, count = best_fit_decreasing(self._held.length, self._held.second, self._limits)
        return self._emit(self._held, bins, np.ones(count, np.bool_))

    def _goes(self, pool: Held, bins: Ints, count: int) -> NDArray[np.bool_]:
        """Which packs go now, bool[count]: the full, the old, and those beyond the hold."""
        tokens, visual, oldest = (np.zeros(count, np.int64) for _ in range(3))
        np.add.at(tokens, bins, pool.length)
        np.maximum.at(oldest, bins, pool.age)
        fill = tokens / self._limits.cap
        if self._limits.second_cap:
            np.add.at(visual, bins, pool.second)
            fill = np.maximum(fill, visual / self._limits.second_cap)
        goes: NDArray[np.bool_] = (fill >= self._finished) | (oldest >= self._age_limit)
        waits = np.flatnonzero(~goes)
        if waits.size > self._hold:
            fullest = waits[np.argsort(-fill[waits], kind="stable")]
            goes[fullest[: waits.size - self._hold]] = True
        return goes

    def _emit(self, pool: Held, bins: Ints, goes: NDArray[np.bool_]) -> Packs:
        """Packs of the bins that go, in order of their numbers; keep the pieces of the others."""
        gone = goes[bins]
        number = np.cumsum(goes) - 1
        self._held = Held(
            pushed=pool.pushed,
            sample=pool.sample[~gone],
            start=pool.start[~gone],
            length=pool.length[~gone],
            second=pool.second[~gone],
            age=pool.age[~gone] + 1,
        )
        columns = (pool.sample, pool.start, pool.length, pool.second)
        sample, start, length, second = (column[gone] for column in columns)
        return grouped(
            number[bins[gone]],
            int(goes.sum()),
            (sample, start, length, second),
            cap=self._limits.cap,
            second_cap=self._limits.second_cap,
        )
