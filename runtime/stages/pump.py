"""An event loop that is driven in turns: it runs what is ready and hands control back.

The worker and the reference executor both own their thread's time: between turns they read the
wire, advance engines, and answer calls. Guarantee: when `run_ready` returns, nothing is ready, so
whatever answers arrive next are seen by code that has gone as far as it can without them. Lockstep
episodes build on this (see `episodes.py`).
"""

import asyncio
import heapq
import select
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

TURNS = 10_000
"""Rounds of ready callbacks before a turn ends anyway: a coroutine that spins must not stop all."""


class TurnLoop(asyncio.SelectorEventLoop):
    """A standard loop that counts what is scheduled and knows when its next timer is due."""

    def __init__(self) -> None:
        self.scheduled = 0
        self._timers: list[float] = []
        self._watch = selectors.DefaultSelector()
        super().__init__(self._watch)

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self.scheduled += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        heapq.heappush(self._timers, when)
        return super().call_at(when, callback, *args, context=context)

    def wake_in(self) -> float | None:
        """Seconds until the next timer (a cancelled one counts), or None when there is none."""
        return max(0.0, self._timers[0] - self.time()) if self._timers else None

    def passed(self, moment: float) -> None:
        """All timers due at `moment` have run."""
        while self._timers and self._timers[0] <= moment:
            heapq.heappop(self._timers)

    def fileno(self) -> int:
        """Readable when the user's sockets or threads have something: poll it beside yours."""
        return int(self._watch.fileno())


def run_ready(loop: TurnLoop) -> None:
    """Runs callbacks and due timers until none is ready; never blocks.

    A coroutine that yields for ever without waiting for anything ends the turn after `TURNS`
    rounds.
    """
    for _ in range(TURNS):
        before, moment = loop.scheduled, loop.time()
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.passed(moment)
        if loop.scheduled == before + 1:
            return


def wait(loop: TurnLoop, timeout: float | None = None) -> None:
    """Blocks until a timer is due, a socket of the user's is ready, or `timeout` seconds pass."""
    limits = [limit for limit in (loop.wake_in(), timeout) if limit is not None]
    poll = select.poll()
    poll.register(loop.fileno(), select.POLLIN)
    poll.poll(1000.0 * min(limits) if limits else None)
