"""A costs file is planned by, whichever command compiles the graph."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING, call

Capture = pytest.CaptureFixture[str]
SLOW = {"value": 0.5, "spread": 0.2, "count": 7}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(COUNTING, tmp_path)
    return tmp_path


def write_costs(capsys: Capture) -> None:
    """Of a trainer that takes half a second a micro-batch, on this machine's cores."""
    plan = json.loads(call(capsys, "inspect", "counting.py", "--json").out)
    assert plan["step_s"] < 0.1
    kind = call(capsys, "inspect", "counting.py", "--ir", "plan").out.split("kind ")[1].split()[0]
    costs = {"device": kind.strip('"'), "values": {"lm.gang.item_s": SLOW}}
    Path("costs.json").write_text(json.dumps(costs))


def test_inspect_and_simulate_plan_a_graph_by_what_was_measured(
    folder: Path, capsys: Capture
) -> None:
    write_costs(capsys)
    inspected = call(capsys, "inspect", "counting.py", "--costs", "costs.json", "--json")
    plan = json.loads(inspected.out)
    assert plan["step_s"] > 0.4
    assert plan["modules"]["lm"]["measured"]
    arguments = ("counting.py", "--costs", "costs.json", "--steps", "3", "--json")
    simulated = json.loads(call(capsys, "simulate", *arguments).out)
    assert simulated["step_s"]["p50"] > 0.4
    explained = call(capsys, "inspect", "counting.py", "--costs", "costs.json", "--decisions").out
    assert "item_s 0.5 ± 20 % of 7" in explained


@pytest.mark.parametrize("command", ["inspect", "simulate", "run"])
def test_a_compiled_plan_cannot_be_measured_anew(
    folder: Path, capsys: Capture, command: str
) -> None:
    write_costs(capsys)
    call(capsys, "compile", "counting.py", "-o", "p.fgplan")
    outcome = call(capsys, command, "p.fgplan", "--costs", "costs.json")
    assert outcome.status == 2
    assert "p.fgplan is compiled already: --costs cannot change it" in outcome.err


def test_a_costs_file_that_is_not_there_is_named(folder: Path, capsys: Capture) -> None:
    outcome = call(capsys, "simulate", "counting.py", "--costs", "gone.json")
    assert outcome.status == 2
    assert "gone.json: No such file" in outcome.err
