"""`flowgraph resume` goes on exactly where a run was, whatever ended it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runs.running import GRAPHS, ROOT, all_end

LETTERS = str(GRAPHS / "letters.py")
COMMAND = [sys.executable, "-m", "flowgraph.cli.main"]


def flowgraph(*arguments: str) -> dict[str, Any]:
    """The command's JSON. Raises CalledProcessError when it fails."""
    command = [*COMMAND, *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start(*arguments: str) -> "subprocess.Popen[str]":
    """The command in a process group of its own, its lines to be read."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the run ended without {text!r}")


def members(group: int) -> list[int]:
    """Live processes of the group; one that is dead and waits for its parent is none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def steps_of(folder: Path) -> Sequence[int]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [m["step"] for m in map(json.loads, lines) if m["kind"] == "step"]


SETTINGS = ["--set", "steps=40", "--set", "pause_s=0.02", "--exact"]


@pytest.mark.slow
def test_a_run_killed_with_all_its_processes_resumes_to_the_bits_of_an_uninterrupted_one(
    tmp_path: Path,
) -> None:
    whole = flowgraph("run", LETTERS, *SETTINGS, "--run-dir", str(tmp_path / "whole"))
    folder = tmp_path / "run"
    process = start("run", LETTERS, *SETTINGS, "--checkpoint-every", "4", "--run-dir", str(folder))
    wait_for(process, "step ")
    running = members(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(running) > 2
    assert all_end(running)
    resumed = flowgraph("resume", str(folder))
    for name in ("steps", "weights_digest", "initial_digest", "samples", "updates", "metrics"):
        assert resumed[name] == whole[name], name
    assert steps_of(folder) == list(range(40))


@pytest.mark.slow
def test_a_finished_run_is_told_again_and_nothing_is_done(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    first = flowgraph("run", LETTERS, "--steps", "2", "--run-dir", folder)
    again = flowgraph("resume", folder)
    assert again["weights_digest"] == first["weights_digest"]
    assert again["samples"] == first["samples"]


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_the_folder_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start("run", LETTERS, "--set", "steps=100000", "--run-dir", str(folder))
    wait_for(process, "step ")
    running = members(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=10) == 1
    assert all_end(running, within_s=1.0)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_when_only_the_orchestrator_is_killed_no_worker_outlives_it(tmp_path: Path) -> None:
    process = start("run", LETTERS, "--set", "steps=100000", "--run-dir", str(tmp_path / "run"))
    wait_for(process, "step ")
    running = members(process.pid)
    process.kill()
    process.wait()
    assert len(running) > 2
    assert all_end(running)
