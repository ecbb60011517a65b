"""Virtual time: what happens next, and cores that several jobs share.

Laws: time never runs backwards; what is due at one instant happens in the order in which it was
asked for; a job on shared cores gets exactly the work it asked for.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple

Act = Callable[[], None]


class Due(NamedTuple):
    """`number` breaks ties, so that actions are never compared."""

    time: float
    number: int
    act: Act


class Clock:
    """An agenda of actions by their time. `now`: seconds since the simulation began."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._agenda: list[Due] = []
        self._number = 0

    def at(self, time: float, act: Act) -> None:
        """Do it then; at once, after what is already due, if that is past."""
        self._number += 1
        heapq.heappush(self._agenda, Due(max(time, self.now), self._number, act))

    def turn(self) -> bool:
        """Do what is due next. False when nothing is due any more."""
        if not self._agenda:
            return False
        due = heapq.heappop(self._agenda)
        self.now = due.time
        due.act()
        return True


class Job(NamedTuple):
    """Ends when every job of its cores has been given `target` seconds of work in all."""

    target: float
    number: int
    done: Act


class Cores:
    """Equal cores under a fair scheduler: n jobs run at min(1, capacity / n) each.

    background: processes of others that never wait; they take their share like a job.
    All jobs advance at one rate, so one number, the work that each has been given, orders them.
    """

    def __init__(self, clock: Clock, capacity: float, background: float = 0.0) -> None:
        self.capacity = capacity
        self.worked = 0.0
        self._clock = clock
        self._background = background
        self._jobs: list[Job] = []
        self._given = 0.0
        self._since = clock.now
        self._number = 0

    def start(self, work: float, done: Act) -> None:
        """Call `done` once the job has had `work` seconds of a core."""
        self._advance()
        self.worked += work
        self._number += 1
        heapq.heappush(self._jobs, Job(self._given + work, self._number, done))
        self._plan()

    def _rate(self) -> float:
        return min(1.0, self.capacity / (len(self._jobs) + self._background))

    def _advance(self) -> None:
        if self._jobs:
            self._given += (self._clock.now - self._since) * self._rate()
        else:
            self._given = 0.0  # a fresh start keeps small numbers, and their precision
        self._since = self._clock.now

    def _plan(self) -> None:
        """Come back when the next job ends, unless jobs come or go before."""
        if self._jobs:
            wait = max(0.0, self._jobs[0].target - self._given) / self._rate()
            number = self._number
            self._clock.at(self._clock.now + wait, lambda: self._end(number))

    def _end(self, number: int) -> None:
        if number != self._number:
            return
        self._given = self._jobs[0].target  # exactly: rounding must not leave a rest
        self._since = self._clock.now
        job = heapq.heappop(self._jobs)
        self._number += 1
        self._plan()
        job.done()
