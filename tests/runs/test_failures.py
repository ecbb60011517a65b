"""Law 3: whoever is lost, the run ends within seconds, names the cause, and leaves nobody."""

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from flowgraph.runtime.progress import Progress, Restarted, StepFinished, WorkerStarted
from flowgraph.runtime.shell import RunAborted
from tests.runs.running import GRAPHS, plan_of, run

LETTERS = GRAPHS / "letters.py"


class Killer:
    """Sends one worker a signal once, at a step's end, and remembers all of them."""

    def __init__(self, worker: str, step: int = 0, number: int = signal.SIGKILL) -> None:
        self._worker = worker
        self._number = number
        self._step = step
        self.pids: dict[str, int] = {}
        self.restarts: list[Restarted] = []
        self.killed_at = 0.0

    def __call__(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self.pids[progress.name] = progress.pid
            case Restarted():
                self.restarts.append(progress)
            case StepFinished() if progress.step == self._step and not self.killed_at:
                self.killed_at = time.monotonic()
                os.kill(self.pids[self._worker], self._number)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_an_exception_of_the_users_function_names_stage_sample_cause_line_and_log(
    tmp_path: Path,
) -> None:
    plan = plan_of(LETTERS, {"fails_at": "13"})
    with pytest.raises(RunAborted) as caught:
        run(plan, tmp_path / "run")
    error = caught.value
    assert (error.stage, error.sample) == ("check", 13)
    assert "cannot read a line that starts with 13" in error.what
    assert error.at is not None
    assert error.at.file.endswith("letters.py")
    assert "raise ValueError" in error.trace
    assert "host-0" in error.what
    assert (tmp_path / "run" / "logs" / "host-0.log").exists()
    assert '"failed"' in (tmp_path / "run" / "outcome.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["host-0", "lm.gang-0", "lm.gang-1"])
def test_a_killed_worker_ends_the_run_within_seconds_and_nobody_is_left(
    worker: str, tmp_path: Path
) -> None:
    plan = plan_of(LETTERS, {"steps": "10000"}, {"lm.ranks": 2})
    killer = Killer(worker)
    with pytest.raises(RunAborted) as caught:
        run(plan, tmp_path / "run", observe=killer)
    assert time.monotonic() - killer.killed_at < 10.0
    assert f"worker {worker} was killed by signal 9 (SIGKILL)" in caught.value.what
    assert f"{worker}.log" in str(caught.value.hint)
    assert all(map(gone, killer.pids.values()))


@pytest.mark.slow
def test_no_scratch_folder_or_shared_memory_is_left_by_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A short path: sockets' names are limited.
    with tempfile.TemporaryDirectory(prefix="fg-", dir="/tmp") as scratch:
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        before = os.listdir("/dev/shm")
        seen: list[str] = []
        run(plan_of(LETTERS), tmp_path / "run", observe=lambda _: seen.extend(os.listdir(scratch)))
        assert seen, "the run had its scratch folder elsewhere"
        assert os.listdir(scratch) == []
        assert os.listdir("/dev/shm") == before


@pytest.mark.slow
@pytest.mark.parametrize(("worker", "alone"), [("host-0", "host-0"), ("lm.gang-1", "")])
def test_a_run_goes_on_when_a_worker_is_killed_and_ends_with_the_same_bits(
    worker: str, alone: str, tmp_path: Path
) -> None:
    plan = plan_of(LETTERS, {"steps": "12"}, {"lm.ranks": 2})
    expected = run(plan, tmp_path / "whole", exact=True)
    killer = Killer(worker, step=7)
    result = run(plan, tmp_path / "run", exact=True, observe=killer, checkpoint_every=3, restarts=1)
    assert killer.killed_at
    assert [(told.restart, told.worker) for told in killer.restarts] == [(1, alone)]
    assert result.steps == 12
    assert result.weights_digest == expected.weights_digest
    assert result.samples == expected.samples
    assert result.updates == expected.updates


@pytest.mark.slow
def test_a_worker_that_hangs_is_lost_after_the_stated_silence_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    plan = plan_of(LETTERS, {"steps": "6"})
    hang = Killer("lm.gang-0", step=2, number=signal.SIGSTOP)
    result = run(
        plan, tmp_path / "run", observe=hang, checkpoint_every=1, restarts=1, silence_s=2.0
    )
    assert result.steps == 6
    (restart,) = hang.restarts
    assert "lm.gang-0 said nothing for" in restart.cause
