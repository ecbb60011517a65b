"""`flowgraph run`, with real processes: its result, its failures, its end by Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flowgraph.cli.failure import explain, replay_command
from flowgraph.cli.options import Request
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.orchestrator.events import Abort
from flowgraph.runtime.shell import RunAborted, RunInterrupted
from tests.cli.commands import COUNTING, call, contents
from tests.cli.test_progress import DOCUMENTED

Capture = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "flowgraph.cli.main"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(COUNTING, tmp_path)
    return tmp_path


def flowgraph(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
def test_json_is_one_last_line_and_the_run_directory_holds_the_run(folder: Path) -> None:
    began = time.monotonic()
    done = flowgraph("run", "counting.py", "--steps", "5", "--json", "--run-dir", "r")
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(done.stdout)
    assert set(DOCUMENTED) <= set(found)
    assert 0.5 * took < found["wall_s"] <= took + 0.1
    assert found["steps"] == found["updates"]["lm"] == 5
    assert {w["name"] for w in found["workers"]} == {
        "orchestrator",
        "zygote",
        "host-0",
        "lm.gang-0",
    }
    assert all(gone(worker["pid"]) for worker in found["workers"])
    for counts in found["samples"].values():
        assert counts == {"admitted": 40, "consumed": 40, "dropped": 0, "in_flight": 0}
    assert set(found["metrics"]["lm"]["loss"]) == {"first", "last"}
    assert found["weights_digest"]["lm"] != found["initial_digest"]["lm"]
    assert "step 5/5" in done.stderr
    there = contents(folder / "r")
    assert {"plan.fgplan", "metrics.jsonl", "report.html", "result.json"} <= set(there)
    told = flowgraph("inspect", "r", "--json")
    story = json.loads(told.stdout)
    assert (story["state"], story["steps"]) == ("finished", 5)
    assert story["plan_hash"] == found["plan_hash"]


@pytest.mark.slow
def test_a_compiled_plan_runs_to_the_same_weights_as_its_graph_and_the_reference(
    folder: Path, capsys: Capture
) -> None:
    assert call(capsys, "compile", "counting.py", "-o", "p.fgplan").status == 0
    runs = (
        ("p.fgplan", "--exact"),
        ("counting.py", "--exact"),
        ("p.fgplan", "--exact", "--reference"),
    )
    digests = set()
    for arguments in runs:
        done = flowgraph("run", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        digests.add(json.loads(done.stdout)["weights_digest"]["lm"])
    assert len(digests) == 1
    assert len(list((folder / "runs").glob("counting-*"))) == 3


@pytest.mark.slow
def test_code_that_changed_since_compiling_warns(folder: Path, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    (folder / "counting.py").write_text(COUNTING.read_text() + "\n# a second thought\n")
    done = flowgraph("run", "p.fgplan", "--reference", "--steps", "1")
    assert done.returncode == 0, done.stderr
    warning = f"warning: {folder}/counting.py (counting:lines) changed since the plan was compiled"
    assert warning in done.stderr.splitlines()


@pytest.mark.slow
def test_a_failure_names_stage_sample_cause_line_log_and_the_command_that_replays_it(
    folder: Path,
) -> None:
    done = flowgraph("run", "counting.py", "--set", "fails_at=13", "--run-dir", "r")
    assert done.returncode == 1
    line = next(i for i, text in enumerate(COUNTING.read_text().splitlines(), 1) if "raise" in text)
    told = [text for text in done.stderr.splitlines() if "report: " not in text]
    assert told == [
        f"error: counting.py:{line}:",
        "  stage 'check', sample 13: ValueError: cannot read a line that starts with 13 "
        "(in worker host-0)",
        "  log: r/logs/host-0.log",
        "  run directory: r",
        "  replay: flowgraph run counting.py --set fails_at=13 --reference --only 13",
    ]
    replay = done.stderr.splitlines()[-1].partition("flowgraph ")[2].split()
    again = flowgraph(*replay)
    assert again.returncode == 1
    assert "stage 'check', sample 13: ValueError" in again.stderr
    assert "Traceback" not in again.stderr
    loud = flowgraph(*replay, "-v")
    assert "raise ValueError" in loud.stderr
    other = flowgraph(*replay[:-1], "12")
    assert other.returncode == 0
    assert "sample 12 went through all stages without a failure" in other.stdout


@pytest.mark.slow
@pytest.mark.parametrize("reference", [[], ["--reference"]], ids=["processes", "reference"])
def test_ctrl_c_ends_all_processes_within_10_s_and_the_run_directory_says_so(
    reference: list[str], folder: Path
) -> None:
    arguments = ["run", "counting.py", "--steps", "100000", "--set", "pause_s=0.01"]
    run = subprocess.Popen(
        [*COMMAND, *arguments, "--run-dir", "r", *reference],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert run.stdout is not None
    while "step 1/" not in run.stdout.readline():
        assert run.poll() is None
    began = time.monotonic()
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes of the run
    _, error = run.communicate(timeout=10)
    assert time.monotonic() - began < 10
    assert run.returncode == 1
    assert "interrupted" in error
    assert "Traceback" not in error
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    assert json.loads((folder / "r" / "outcome.json").read_text())["state"] == "interrupted"
    assert "r: interrupted, " in flowgraph("inspect", "r").stdout


def test_the_replay_command_keeps_what_the_run_was_asked_for() -> None:
    request = Request(
        target="my graph.py:build",
        settings=("batch=4", "name=a b"),
        cluster="c.yaml",
        pins=("lm.ranks=2",),
    )
    assert replay_command(request, 7, exact=True) == (
        "flowgraph run 'my graph.py:build' --set batch=4 --set 'name=a b' --cluster c.yaml "
        "--pin lm.ranks=2 --exact --reference --only 7"
    )


def test_a_sample_of_an_evaluation_is_not_replayed_as_one_of_training(tmp_path: Path) -> None:
    for error in (_of_a_stage(evaluating=True), _of_a_worker(training=False)):
        explain(error, tmp_path, Request(target="g.py"), exact=False)
        assert "where: in an evaluation, which puts no sample aside" in error.__notes__
        assert "replay: flowgraph run g.py --reference" in error.__notes__
    for error in (_of_a_stage(evaluating=False), _of_a_worker(training=True)):
        explain(error, tmp_path, Request(target="g.py"), exact=False)
        assert error.__notes__[-1] == "replay: flowgraph run g.py --reference --only 2"


def _of_a_stage(*, evaluating: bool) -> StageFailed:
    error = StageFailed("play", 2, "ValueError: no", trace="")
    error.evaluating = evaluating
    return error


def _of_a_worker(*, training: bool) -> RunAborted:
    return RunAborted(Abort(what="it failed", stage="play", sample=2, training=training))


def test_who_ends_a_run_is_told_how_it_goes_on(tmp_path: Path) -> None:
    for reference in (False, True):
        error = RunInterrupted("interrupted")
        explain(error, tmp_path / "a b", Request(target="g.py"), exact=False, reference=reference)
        told = f"go on: flowgraph resume '{tmp_path / 'a b'}'" in getattr(error, "__notes__", [])
        assert told is not reference
