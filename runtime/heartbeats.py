"""Which processes have stopped: those whose heartbeat does not come any more.

Every worker beats from a thread of its own (`heartbeat.py`), so one that is stuck in the user's
code still beats, while one that is stopped (SIGSTOP, a frozen container, a machine that swaps
itself to death) does not. No I/O and no clock: times are given. One array, one comparison: beats
of 10,000 workers are no burden.
"""

from collections.abc import Callable, Collection, Iterable

import numpy as np

BEATS_IN_LIMIT = 5
MOST_S = 3.0
"""A worker beats that often within the limit, and at least so often: a lost beat is no death."""

DEAF_S = 2.0
"""A turn of the run's loop takes at most a second; more is no turn, but a stop."""


def period(limit_s: float) -> float:
    """Seconds between two beats; 0 for none, when there is no limit."""
    return min(MOST_S, limit_s / BEATS_IN_LIMIT) if limit_s > 0 else 0.0


class Heartbeats:
    """Times of the last beat, by worker. limit_s: how long none may come; 0: for ever.

    A worker counts from its process's start on: that it is there counts as its first beat. Time in
    which nobody listened (the run itself was stopped, with Ctrl-Z, or had a disk to wait for) is
    not held against anybody.
    """

    def __init__(self, workers: Iterable[str], limit_s: float) -> None:
        self._names = list(workers)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._limit_s = limit_s
        self._last = np.full(len(self._names), np.inf)
        self._unborn = set(self._names)
        self._listened: float | None = None

    def beat(self, workers: Iterable[str], now: float) -> None:
        """These have beaten."""
        places = [self._places[name] for name in workers]
        self._last[places] = now

    def born(self, processes: Collection[str], now: float) -> None:
        """These are there: those that were not before count from now on."""
        if self._unborn:
            new = self._unborn.intersection(processes)
            self._unborn -= new
            self.beat([name for name in new if np.isinf(self._last[self._places[name]])], now)

    def forget(self, worker: str) -> None:
        """Its process is gone; the next one counts from its own start."""
        self._last[self._places[worker]] = np.inf
        self._unborn.add(worker)

    def late(self, now: float, patience: Callable[[str], float]) -> list[tuple[str, float]]:
        """Workers of which no beat came for too long, and for how many seconds none came.

        patience: how many times the limit a worker may take now; infinity when none is expected.
        Call it after all beats that have come were told.
        """
        if self._limit_s <= 0:
            return []
        deaf = 0.0 if self._listened is None else now - self._listened
        self._listened = now
        if deaf > max(self._limit_s / 2.0, DEAF_S):
            self._last += deaf
        return [
            (name, seconds)
            for name, seconds in self._older_than(now, self._limit_s)
            if seconds > patience(name) * self._limit_s
        ]

    def quiet(self, now: float) -> dict[str, float]:
        """The last beat of each worker that has missed two."""
        if self._limit_s <= 0:
            return {}
        old = self._older_than(now, 2.5 * period(self._limit_s))
        return {name: now - seconds for name, seconds in old}

    def _older_than(self, now: float, limit_s: float) -> list[tuple[str, float]]:
        since = now - self._last
        return [(self._names[i], float(since[i])) for i in np.flatnonzero(since > limit_s)]
