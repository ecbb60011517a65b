"""`flowgraph resume` goes on exactly where a run was, whatever ended it."""

import os
import signal
from pathlib import Path

import pytest

from tests.runs.command import flowgraph, members, start, steps_of, wait_for
from tests.runs.running import GRAPHS, all_end

LETTERS = str(GRAPHS / "letters.py")
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
def test_when_only_the_orchestrator_is_killed_no_worker_outlives_it(tmp_path: Path) -> None:
    process = start("run", LETTERS, "--set", "steps=100000", "--run-dir", str(tmp_path / "run"))
    wait_for(process, "step ")
    running = members(process.pid)
    process.kill()
    process.wait()
    assert len(running) > 2
    assert all_end(running)
