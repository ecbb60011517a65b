"""`flowgraph status`: who waits for what, of a run that goes on, hangs, was killed or ended."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowgraph.runtime.progress import Restarted
from tests.runs.command import COMMAND, start, wait_for
from tests.runs.running import GRAPHS, ROOT, plan_of, run
from tests.runs.test_failures import Killer

LETTERS = str(GRAPHS / "letters.py")


def status(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "status", str(folder), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def words(folder: Path) -> str:
    done = subprocess.run(
        [*COMMAND, "status", str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@contextmanager
def going_on(folder: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    settings = ["--set", "steps=100000", "--run-dir", str(folder), *options]
    process = start("run", LETTERS, *settings)
    try:
        wait_for(process, "step ")
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pid_of(process: "subprocess.Popen[str]", worker: str, folder: Path) -> int:
    """The child that writes the worker's log."""
    log = str(folder / "logs" / f"{worker}.log")
    for descriptor in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            if os.readlink(descriptor) == log:
                return int(descriptor.parts[2])
        except (FileNotFoundError, PermissionError):
            continue
    raise AssertionError(f"nobody writes {log}")


def until(folder: Path, wanted: Any, within_s: float = 20.0) -> dict[str, Any]:
    """The first status that is as wanted."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if wanted(found := status(folder)):
            return found
    raise AssertionError(f"not within {within_s} s: {json.dumps(found, indent=1)}")


def by_name(found: dict[str, Any]) -> dict[str, Any]:
    return {worker["name"]: worker for worker in found.get("workers", ())}


def stuck(found: dict[str, Any]) -> bool:
    """Whether nothing has moved for a while."""
    rank = by_name(found).get("lm.gang-0", {})
    return bool(rank.get("state") == "waiting" and time.time() - rank["since"] > 4.0)


@pytest.mark.slow
def test_a_stopped_worker_is_named_with_what_it_holds_and_all_others_wait_for_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with going_on(folder, "--liveness", "0") as process:
        os.kill(pid_of(process, "host-0", folder), signal.SIGSTOP)
        found = until(folder, stuck, within_s=60.0)
        workers = by_name(found)
        assert found["state"] == "running"
        assert found["pid"] == process.pid
        assert workers["host-0"]["state"] == "working"
        assert workers["host-0"]["holds"]
        waiting = workers["lm.gang-0"]
        assert (waiting["state"], waiting["from"]) == ("waiting", ["host-0"])
        stream = next(s for s in found["streams"] if s["step"] == found["step"])
        assert stream["from"] == ["host-0"]
        assert stream["waiting"] > 0
        text = words(folder)
    assert re.search(r"lm.gang-0 +waiting for check of step \d+ from host-0 for \d", text), text
    assert re.search(r"host-0 +working on lines \(samples? \d+(-\d+)?\) for \d", text), text


@pytest.mark.slow
def test_a_stopped_worker_is_shown_without_a_sign_of_life_and_then_replaced(tmp_path: Path) -> None:
    plan = plan_of(GRAPHS / "letters.py", {"steps": "8"})
    stop = Killer("host-0", step=2, number=signal.SIGSTOP)
    expected = run(plan, tmp_path / "whole", exact=True)
    result = run(
        plan,
        tmp_path / "run",
        exact=True,
        observe=stop,
        restarts=1,
        liveness_s=3.0,
        checkpoint_every=1,
    )
    assert time.monotonic() - stop.killed_at < 25.0
    (restart,) = stop.restarts
    assert isinstance(restart, Restarted)
    assert re.search(r"host-0 gave no sign of life for \d s", restart.cause)
    assert result.weights_digest == expected.weights_digest


@pytest.mark.slow
def test_after_kill_9_the_last_known_is_shown_and_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with going_on(folder, "--checkpoint-every", "2"):
        until(folder, lambda s: s["checkpoint"] >= 2)
    found = status(folder)
    assert (found["state"], found["pid"]) == ("dead", None)
    assert found["resume"] == f"flowgraph resume {folder}"
    assert found["workers"]
    text = words(folder)
    assert "dead: it was killed before it could say why" in text
    assert f"go on from step {found['checkpoint']}: flowgraph resume {folder}" in text


@pytest.mark.slow
def test_a_finished_run_is_finished_and_says_no_more(tmp_path: Path) -> None:
    run(plan_of(GRAPHS / "letters.py"), tmp_path / "run")
    found = status(tmp_path / "run")
    assert (found["state"], found["resume"], found["step"]) == ("finished", None, 3)
    assert words(tmp_path / "run").count("\n") == 1


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flowgraph.cli.main", "status", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no run directory" in done.stderr
