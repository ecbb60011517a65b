"""Which workers have said nothing for too long while something was expected of them.

Law 3: no wait without an end. A process that died is told by the kernel; one that hangs (stopped,
or stuck in the user's code) is only known by its silence. No I/O and no clock: times are given.
"""

from collections.abc import Mapping

from flowgraph.runtime.orchestrator.state import RunPhase, State, Worker

DEAF_S = 30.0
"""Longer between two questions, and the run stood still itself."""


class Silence:
    """Times of the last sign of life, by worker. limit_s: how long silence may last."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._asked = 0.0

    @property
    def last_heard(self) -> Mapping[str, float]:
        """By worker, of those that have said something."""
        return self._heard

    def heard(self, worker: str, now: float) -> None:
        """The worker sent a message."""
        self._since[worker] = self._heard[worker] = now

    def over(self, state: State, now: float) -> list[tuple[str, float]]:
        """Workers silent for longer than the limit, and for how many seconds.

        Time counts only while a worker holds work, and while somebody asks: what passes while the
        run itself is stopped (Ctrl-Z) is held against nobody. A stage worker whose calls an engine
        still answers, or will once it is there, waits for that engine: its silence is not its own.
        Nor is that of one that waits for room: the core ends a run in which nobody makes any.
        """
        deaf = now - self._asked
        self._asked = now
        if deaf > DEAF_S:
            self._since = {name: since + deaf for name, since in self._since.items()}
        engines_busy = any(w.inflight for w in state.workers.values() if w.group.kind == "engine")
        engines_busy = engines_busy or any(state.queued.values())
        late = []
        for worker in state.workers.values():
            waits = worker.group.kind == "stage" and engines_busy
            waits = waits or (worker.name in state.full and not worker.recalled)
            if waits or not _expected(state, worker):
                self._since[worker.name] = now
            silent = now - self._since.setdefault(worker.name, now)
            if silent > self._limit_s:
                late.append((worker.name, silent))
        return late


def _expected(state: State, worker: Worker) -> bool:
    """Whether a message must come from this worker."""
    if state.phase is RunPhase.STOPPING:
        return not worker.stopped
    if state.phase is not RunPhase.RUNNING:
        return False
    barrier = bool(state.steps) and worker.name in state.steps[0].waiting_for
    saving = any(worker.name in waiting for waiting in state.saving.values())
    return bool(worker.items or worker.inflight or barrier or saving or worker.recalled)
