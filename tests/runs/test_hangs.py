"""Who is stopped (SIGSTOP) at an awkward moment: nobody waits for it for ever."""

import os
import signal
import time
from functools import cache
from pathlib import Path

import pytest

from flowgraph.ir.errors import RunFailed
from flowgraph.ir.plan import Plan
from flowgraph.runtime import hangs, supervise
from flowgraph.runtime.messages import Load, Message, Stop
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.progress import Progress, Restarted, RunResult, StepFinished
from flowgraph.runtime.shell import Shell
from tests.runs.running import GRAPHS, plan_of, run

pytestmark = pytest.mark.slow

LIVENESS_S = 2.0


@cache
def games() -> Plan:
    return plan_of(GRAPHS / "games.py", {"steps": "2"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(games(), tmp_path_factory.mktemp("whole") / "run", exact=True)


def stop_at(worker: str, message: type[Message], after_death: bool = False) -> type[Shell]:
    """A shell that stops the worker just before it is sent the message for the first time.

    after_death: its first process is killed at that moment, and its next one is stopped.
    """
    blows = [signal.SIGKILL, signal.SIGSTOP] if after_death else [signal.SIGSTOP]

    class StoppingShell(Shell):
        def _act(self, action: Action, cause: int) -> None:
            match action:
                case Send(worker=to, message=sent) if blows and to == worker:
                    if isinstance(sent, message):
                        os.kill(self._launcher.pids[worker], blows.pop(0))
            super()._act(action, cause)

    return StoppingShell


@pytest.mark.parametrize(
    ("worker", "message", "after_death"),
    [
        ("player.engine-0", Load, True),  # the replacement loads weights before it is ready
        ("player.gang-0", Stop, False),
        pytest.param("host-0", Stop, False, marks=pytest.mark.soak),
    ],
)
def test_a_worker_stopped_while_it_loads_or_ends_is_lost_after_the_liveness(
    worker: str,
    message: type[Message],
    after_death: bool,
    whole: RunResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervise, "Shell", stop_at(worker, message, after_death))
    restarts: list[Restarted] = []

    def watch(progress: Progress) -> None:
        if isinstance(progress, Restarted):
            restarts.append(progress)

    began = time.monotonic()
    result = run(
        games(),
        tmp_path / "run",
        exact=True,
        checkpoint_every=1,
        restarts=3,
        liveness_s=LIVENESS_S,
        silence_s=300.0,
        observe=watch,
    )
    assert time.monotonic() - began < 300.0
    assert result.weights_digest == whole.weights_digest
    assert result.samples == whole.samples
    if worker != "host-0":  # which has nothing more to say at its end
        assert "gave no sign of life" in restarts[-1].cause


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ("player.gang-0", "worker player.gang-0 gave no sign of life for"),
        pytest.param("host-0", "worker host-0 gave no sign", marks=pytest.mark.soak),
    ],
)
def test_a_worker_stopped_before_it_is_ready_is_lost_long_before_all_the_time_that_it_may_take(
    worker: str, told: str, whole: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []

    class StoppedAtStart(Shell):
        def _drain(self, timeout_ms: int) -> None:
            pid = self._launcher.pids.get(worker)
            if pid is not None and not stopped:
                stopped.append(pid)
                os.kill(pid, signal.SIGSTOP)
            super()._drain(timeout_ms)

    restarts: list[Restarted] = []

    def watch(progress: Progress) -> None:
        if isinstance(progress, Restarted):
            restarts.append(progress)

    monkeypatch.setattr(supervise, "Shell", StoppedAtStart)
    monkeypatch.setattr(hangs, "STARTING_PATIENCE", 2.0)
    began = time.monotonic()
    result = run(
        games(), tmp_path / "run", exact=True, restarts=1, liveness_s=LIVENESS_S, observe=watch
    )
    assert time.monotonic() - began < 120.0
    assert result.weights_digest == whole.weights_digest
    (restart,) = restarts
    assert told in restart.cause
    assert "while it started (was it stopped?)" in restart.cause


def test_when_the_process_that_starts_workers_is_stopped_a_lost_worker_ends_the_run_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedZygote(Shell):
        def _act(self, action: Action, cause: int) -> None:
            super()._act(action, cause)
            if hurt and (pid := self._launcher.pids.get("host-0")):
                hurt.clear()
                os.kill(self._launcher.zygote_pid, signal.SIGSTOP)
                os.kill(pid, signal.SIGKILL)

    hurt: list[Progress] = []

    def watch(progress: Progress) -> None:
        if isinstance(progress, StepFinished) and progress.step == 0:
            hurt.append(progress)

    monkeypatch.setattr(supervise, "Shell", StoppedZygote)
    monkeypatch.setattr(hangs, "TOLD_S", 1.0)
    plan = plan_of(GRAPHS / "games.py", {"steps": "100000"})
    told = "process that starts workers hangs: worker host-0 gave no sign of life .* is not told"
    began = time.monotonic()
    with pytest.raises(RunFailed, match=told):
        run(plan, tmp_path / "run", restarts=3, liveness_s=LIVENESS_S, observe=watch)
    assert time.monotonic() - began < 60.0
