"""compile and inspect, driven as a shell would."""

import json
import shutil
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.ir.binary import decode, plan_hash
from flowgraph.ir.text import parse_graph, parse_plan
from flowgraph.report.run_story import read_run
from tests.cli.commands import COUNTING, call

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(COUNTING, tmp_path)
    return tmp_path


def test_compile_writes_a_plan_named_after_the_graph_and_says_what_it_decided(
    folder: Path, capsys: Capture
) -> None:
    outcome = call(capsys, "compile", "counting.py")
    assert outcome.status == 0
    assert "counting on this-machine: 2 workers and the orchestrator" in outcome.out
    plan = decode((folder / "counting.fgplan").read_bytes())
    assert plan.graph.name == "counting"
    assert not list(folder.glob("*.part"))


def test_pins_are_typed_and_settings_reach_build(folder: Path, capsys: Capture) -> None:
    options = ("--pin", "lm.ranks=2", "--pin", "schedule.mode=barrier", "--set", "batch=16")
    assert call(capsys, "compile", "counting.py:build", *options, "-o", "p.fgplan").status == 0
    plan = decode((folder / "p.fgplan").read_bytes())
    assert plan.group("lm.gang").replicas == 2
    assert (plan.schedule.mode, plan.schedule.batch) == ("barrier", 16)
    assert plan.graph.pins == {"lm.ranks": 2, "schedule.mode": "barrier"}


def test_a_plan_compiled_twice_is_the_same_plan(folder: Path, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "-o", "a.fgplan")
    call(capsys, "compile", "counting.py", "-o", "b.fgplan")
    assert (folder / "a.fgplan").read_bytes() == (folder / "b.fgplan").read_bytes()


def test_inspect_explains_a_graph_and_its_plan_alike(folder: Path, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    of_graph = call(capsys, "inspect", "counting.py")
    of_plan = call(capsys, "inspect", "p.fgplan")
    assert of_graph.out == of_plan.out
    assert "decisions" in of_plan.out
    assert "lm.gang" in of_plan.out


def test_inspect_prints_text_forms_that_can_be_read_back(folder: Path, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    plan = decode((folder / "p.fgplan").read_bytes())
    assert parse_plan(call(capsys, "inspect", "p.fgplan", "--ir", "plan").out) == plan
    flow = call(capsys, "inspect", "counting.py", "--ir", "flow").out
    assert parse_graph(flow) == fg.load_graph("counting.py")


def test_inspect_prints_json(folder: Path, capsys: Capture) -> None:
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    told = json.loads(call(capsys, "inspect", "p.fgplan", "--json").out)
    plan = decode((folder / "p.fgplan").read_bytes())
    assert told["plan_hash"] == plan_hash(plan)
    assert told["plan"]["graph"]["name"] == "counting"
    flow = json.loads(call(capsys, "inspect", "counting.py", "--ir", "flow", "--json").out)
    assert [stage["name"] for stage in flow["stages"]] == ["lines", "check", "train-lm"]


def test_a_traceback_is_shown_only_when_asked_for(folder: Path, capsys: Capture) -> None:
    quiet = call(capsys, "inspect", "counting.py", "--set", "batch=many")
    assert "Traceback" not in quiet.err
    for arguments in (
        ("-v", "inspect", "counting.py", "--set", "batch=many"),
        ("inspect", "counting.py", "--set", "batch=many", "-v"),
    ):
        loud = call(capsys, *arguments)
        assert "Traceback" in loud.err
        assert loud.err.endswith(quiet.err)
        assert loud.status == quiet.status == 2


def test_a_killed_run_and_one_that_failed_are_told_apart(folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    (run / "outcome.json").write_text('{"state": "running"}')
    (run / "metrics.jsonl").write_text(
        '{"kind": "step", "step": 0, "seconds": 1.0, "metrics": {"lm": {"loss": 2.0}}, '
        '"tokens": 5, "busy": {}}\n{"kind": "step", "st'
    )
    story = read_run(run)
    assert story.told().startswith(f"{run}: running, or killed without a word, 1 step")
    (run / "outcome.json").write_text('{"state": "failed", "error": "graph.py:3:\\n  boom"}')
    assert "boom" in read_run(run).told()
    (run / "outcome.json").write_text('{"state": "finished"}')
    (run / "result.json").write_text('{"wall_s": 75.2}')
    assert "finished, 1 step in 1 min 15 s" in read_run(run).told()
