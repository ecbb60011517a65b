"""Who hangs in a run is killed: a stopped process, one that is stuck in the user's code, and the
process that starts workers, when it does not tell the end of one that was killed.

Law 3: no wait without an end. Which silence is too long is `silence.py`'s and `heartbeats.py`'s to
say; here it is acted on. Times are seconds since the attempt began.
"""

import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.heartbeats import Heartbeats
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.state import RunPhase, State, WorkerPhase
from flowgraph.runtime.orchestrator.wait_report import Signs
from flowgraph.runtime.silence import Silence

LOOK_S = 0.25
"""Between two looks for workers that hang: there may be thousands, and many turns a second."""

TOLD_S = 10.0
"""In which the end of a worker that was killed must be told: the kernel needs milliseconds."""

BEATING: Mapping[RunPhase, frozenset[WorkerPhase]] = {
    RunPhase.STARTING: frozenset({WorkerPhase.READY}),
    RunPhase.RUNNING: frozenset({WorkerPhase.READY, WorkerPhase.LOADING}),
    RunPhase.STOPPING: frozenset({WorkerPhase.STOPPING}),
}
"""When a worker that does not beat within the limit is lost."""

STARTING_PATIENCE = 8.0
"""Limits without a beat that a worker may take that is not ready yet: 120 s, unless told otherwise.
It imports the user's files and builds its model, some of it in C code that lets no thread run."""


class Hangs:
    """Kills who hangs, and keeps why until the end is told."""

    def __init__(self, workers: Iterable[str], options: RunOptions) -> None:
        self._silence = Silence(options.silence_s)
        self._beats = Heartbeats(workers, options.liveness_s)
        self._looked = 0.0
        self._killed: dict[str, tuple[str, float]] = {}  # why and when, until its end is told

    def heard(self, worker: str, now: float) -> None:
        """The worker sent a message."""
        self._silence.heard(worker, now)

    def signs(self, now: float) -> Signs:
        """What the report of who waits says of them."""
        return Signs(heard=self._silence.last_heard, silent=self._beats.quiet(now))

    def end(
        self,
        state: State,
        beats: Callable[[], Iterable[str]],
        pids: Mapping[str, int],
        now: float,
    ) -> None:
        """Kill who hangs; its end is then told like any other. beats: who beat since its last call.

        Raises RunFailed when the end of one that was killed is not told.
        """
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        self._beats.born(pids.keys(), now)
        self._beats.beat(beats(), now)
        for worker, seconds in self._silence.over(state, now):
            self.kill(worker, pids, f"said nothing for {seconds:.0f} s", now)
        for worker, seconds in self._beats.late(now, lambda name: _patience(state, name)):
            starting = state.workers[worker].phase is WorkerPhase.STARTING
            doing = " while it started" if starting else ""
            why = f"gave no sign of life for {seconds:.0f} s{doing} (was it stopped?)"
            self.kill(worker, pids, why, now)
        for worker, (why, since) in self._killed.items():
            if now - since > TOLD_S:
                raise launcher_hangs(f"worker {worker} {why}, and its end is not told")

    def kill(self, worker: str, pids: Mapping[str, int], why: str, now: float) -> None:
        """Once; `how` tells why. Raises RunFailed when its process was never started."""
        if worker in self._killed:
            return
        if worker not in pids:
            raise launcher_hangs(f"worker {worker} {why}, and was never started")
        self._killed[worker] = (f"{why} and was killed", now)
        with suppress(ProcessLookupError):  # it ended just now, which will be told
            os.kill(pids[worker], signal.SIGKILL)

    def how(self, worker: str, how: str) -> str:
        """Its end was told: how it came, or why it was killed. The next one beats anew."""
        self._beats.forget(worker)
        why, _ = self._killed.pop(worker, (how, 0.0))
        return why


def _patience(state: State, worker: str) -> float:
    """In how many limits a beat must come."""
    phase = state.workers[worker].phase
    if phase is WorkerPhase.STARTING:
        return STARTING_PATIENCE
    return 1.0 if phase in BEATING.get(state.phase, frozenset()) else math.inf


def launcher_hangs(what: str) -> RunFailed:
    """The end of a run whose zygote does nothing any more."""
    return RunFailed(
        f"the process that starts workers hangs: {what}",
        hint="was it stopped? flowgraph resume goes on",
    )
