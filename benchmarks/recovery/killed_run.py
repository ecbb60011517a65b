"""One real run of which one worker is killed with -9 between two steps."""

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.journal_reader import read_messages
from flowgraph.runtime.messages import Done, Generated, Ready, Updated
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, Restarted, StepFinished, WorkerStarted
from flowgraph.runtime.supervise import run_plan

ANSWERS = (Done, Generated, Updated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Seconds. noticed: from the kill until the orchestrator acted on it. start: from then until
    the new process, or after a roll-back all of them, had said that it is ready: the worker's own
    start. answer: from then to the first finished work, of the new process or of anybody.
    """

    noticed: float
    start: float
    answer: float
    rolled_back: bool

    @property
    def seconds(self) -> float:
        """From the kill to progress again, less the worker's own start."""
        return self.noticed + self.answer


class _Killer:
    """Kills the victim once the step is over, and keeps the times of what follows."""

    def __init__(self, victim: str, after_step: int) -> None:
        self._victim = victim
        self._after = after_step
        self._pid = 0
        self.killed = self.noticed = self.ready = 0.0
        self.rolled_back = False

    def observe(self, progress: Progress) -> None:
        now = time.monotonic()
        match progress:
            case WorkerStarted(name=name):
                if self.noticed and (self.rolled_back or name == self._victim):
                    self.ready = now
                if name == self._victim:
                    self._pid = progress.pid
            case StepFinished(step=step) if step == self._after and not self.killed:
                self.killed = now
                os.kill(self._pid, signal.SIGKILL)
            case Restarted():
                self.noticed = self.noticed or now
                self.rolled_back = not progress.worker


def kill_in_a_run(plan: Plan, victim: str, *, after_step: int, steps: int) -> Recovery:
    """Run the plan to its end, with one death on the way."""
    killer = _Killer(victim, after_step)
    with tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder:
        run = Path(folder) / "run"
        options = RunOptions(run_dir=str(run), steps=steps, checkpoint_every=after_step)
        run_plan(plan, options, killer.observe)
        answer = _first_answer(run, victim, killer.rolled_back)
    return Recovery(
        noticed=killer.noticed - killer.killed,
        start=killer.ready - killer.noticed,
        answer=answer,
        rolled_back=killer.rolled_back,
    )


def _first_answer(run: Path, victim: str, rolled_back: bool) -> float:
    """Seconds from the new process's `Ready` (after a roll-back: the last one) to an answer."""
    starts = 0
    ready = None
    for at, sent, worker, message in read_messages(run):
        counts = not sent and (rolled_back or worker == victim)
        if not sent and worker == victim and isinstance(message, Ready):
            starts += 1
        if counts and starts > 1 and isinstance(message, Ready):
            ready = at
        elif counts and ready is not None and isinstance(message, ANSWERS):
            return at - ready
    raise InternalError(f"{victim} was killed, and nothing was finished after that")
