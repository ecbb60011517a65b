"""Real processes are killed with -9, once at each kind of transition; the bits are the same.

A stage worker and an engine are replaced alone: no step is taken again. A rank takes its gang back
to the last checkpoint.
"""

import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from flowgraph.ir.errors import RunFailed
from flowgraph.ir.plan import Plan
from flowgraph.runtime import supervise
from flowgraph.runtime.messages import Generate, Load, Message, Run, Save, Stop, Update
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.progress import Progress, Restarted, RunResult, StepFinished, WorkerStarted
from flowgraph.runtime.shell import Shell
from tests.runs.running import GRAPHS, all_end, plan_of, run

pytestmark = pytest.mark.slow

STEPS = 3
TOLD = ("weights_digest", "initial_digest", "samples", "updates", "metrics", "steps")


class Watching:
    """Remembers what a run tells."""

    def __init__(self) -> None:
        self.restarts: list[Restarted] = []
        self.steps: list[int] = []

    def __call__(self, progress: Progress) -> None:
        match progress:
            case Restarted():
                self.restarts.append(progress)
            case StepFinished():
                self.steps.append(progress.step)


def kill_at(
    worker: str, message: type[Message] | None, number: int, victim: str = ""
) -> type[Shell]:
    """A shell that kills the worker when the message is sent to it for the n-th time.

    message: None is before the process can say a word, n times in all. victim: another one, which
    is killed before the message is sent.
    """
    sent = 0

    class KillingShell(Shell):
        def _act(self, action: Action, cause: int) -> None:
            nonlocal sent
            now = False
            if message and isinstance(action, Send) and action.worker == worker:
                sent += isinstance(action.message, message)
                now = isinstance(action.message, message) and sent == number
            before = bool(victim) or message is Stop  # who has stopped cannot be lost
            if now and before:
                os.kill(self._launcher.pids[victim or worker], signal.SIGKILL)
            super()._act(action, cause)
            if now and not before:
                os.kill(self._launcher.pids[worker], signal.SIGKILL)

        def _turn(self) -> None:
            nonlocal sent
            pid = self._launcher.pids.get(worker)
            if message is None and pid is not None and sent < number:
                sent += 1
                self._launcher.pids.pop(worker)
                os.kill(pid, signal.SIGKILL)
            super()._turn()

    return KillingShell


@cache
def plan_named(name: str) -> Plan:
    if name == "agents":
        return plan_of(GRAPHS / "games.py", {"steps": str(STEPS)})
    return plan_of(GRAPHS / "letters.py", {"steps": str(STEPS)}, {"lm.ranks": 2})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunResult]:
    folder = tmp_path_factory.mktemp("whole")
    return {
        name: run(plan_named(name), folder / name, exact=True, checkpoint_every=1)
        for name in ("agents", "letters")
    }


CASES: list[tuple[str, str, type[Message] | None, int, bool]] = [
    ("agents", "host-0", Run, 5, True),
    ("agents", "player.engine-0", Generate, 4, True),
    ("agents", "player.engine-0", Load, 1, True),
    ("agents", "host-0", None, 1, True),
    ("agents", "player.engine-0", None, 2, True),
    ("agents", "player.gang-0", Update, 2, False),
    ("letters", "lm.gang-1", Run, 3, False),
    ("letters", "lm.gang-1", Update, 2, False),
    ("letters", "lm.gang-0", Save, 1, False),
    ("letters", "lm.gang-0", Stop, 1, False),
]


def _name(value: Any) -> str:
    return "start" if value is None else str(getattr(value, "__name__", value))


@pytest.mark.parametrize(("name", "worker", "message", "number", "alone"), CASES, ids=_name)
def test_a_worker_killed_at_a_transition_leaves_no_trace_in_the_result(
    name: str,
    worker: str,
    message: type[Message] | None,
    number: int,
    alone: bool,
    whole: dict[str, RunResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "Shell", kill_at(worker, message, number))
    seen = Watching()
    result = run(
        plan_named(name),
        tmp_path / "run",
        exact=True,
        checkpoint_every=1,
        restarts=3,
        observe=seen,
    )
    expected = whole[name]
    for what in TOLD:
        assert getattr(result, what) == getattr(expected, what), what
    assert seen.restarts
    assert all((restart.worker == worker) is alone for restart in seen.restarts)
    if alone:
        assert seen.steps == list(range(STEPS)), "a step was taken again"


def test_an_engine_that_finds_its_trainer_gone_is_lost_with_it_and_blamed_for_nothing(
    whole: dict[str, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing = kill_at("player.engine-0", Load, 2, victim="player.gang-0")
    monkeypatch.setattr(supervise, "Shell", killing)
    result = run(plan_named("agents"), tmp_path / "run", exact=True, checkpoint_every=1, restarts=3)
    assert result.weights_digest == whole["agents"].weights_digest
    assert result.samples == whole["agents"].samples


def test_when_the_process_that_starts_workers_is_killed_the_run_ends_and_nobody_is_left(
    tmp_path: Path,
) -> None:
    pids: list[int] = []
    called: dict[str, str] = {}

    def kill_parent(progress: Progress) -> None:
        if isinstance(progress, WorkerStarted):
            pids.append(progress.pid)
            called[progress.name] = Path(f"/proc/{progress.pid}/comm").read_text().strip()
        if isinstance(progress, StepFinished) and progress.step == 0:
            stat = Path(f"/proc/{pids[0]}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)

    plan = plan_of(GRAPHS / "letters.py", {"steps": "100000"})
    with pytest.raises(RunFailed, match="the process that starts workers was killed by signal 9"):
        run(plan, tmp_path / "run", restarts=3, observe=kill_parent)
    assert called == {"host-0": "host-0", "lm.gang-0": "lm.gang-0"}  # in `ps` too
    assert all_end(pids)  # the kernel kills them with their parent, and needs a moment for it


@pytest.mark.parametrize("worker", ["host-0", "player.engine-0"])
def test_who_has_nothing_more_to_say_is_not_missed_at_the_end(
    worker: str,
    whole: dict[str, RunResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "Shell", kill_at(worker, Stop, 1))
    seen = Watching()
    result = run(plan_named("agents"), tmp_path / "run", exact=True, restarts=0, observe=seen)
    assert result.weights_digest == whole["agents"].weights_digest
    assert seen.restarts == []
