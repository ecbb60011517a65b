"""Costs that a few real steps give: the compiler takes them, and says that they were measured."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flowgraph as fg
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Graph
from flowgraph.passes import compile_graph
from flowgraph.profile.profile import profile
from flowgraph.profile.samples import Line, Samples
from tests.passes.graphs import gpus, laptop, vlm

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "examples" / "marl_arithmetic.py"
LETTERS = ROOT / "tests" / "runs" / "graphs" / "letters.py"
DIGITS = ROOT / "examples" / "vlm_digits.py"

MEASURE = """
import json, sys
from pathlib import Path
import flowgraph as fg
from flowgraph.passes import compile_graph
from flowgraph.profile.profile import profile
from tests.passes.graphs import laptop
file, settings, folder = sys.argv[1:]
plan = compile_graph(fg.load_graph(file, json.loads(settings)), laptop())
print(json.dumps(profile(plan, Path(folder), steps=1)))
"""


def measure(file: Path, settings: dict[str, str], folder: Path) -> tuple[Graph, dict[str, Any]]:
    """In a process of its own: measuring sets torch's number of threads."""
    command = [sys.executable, "-c", MEASURE, str(file), json.dumps(settings), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    costs: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return fg.load_graph(str(file), settings), costs


@pytest.mark.slow
def test_a_profile_of_agents_replaces_what_the_graph_expects_of_them(tmp_path: Path) -> None:
    settings = {"batch": "4", "tries": "4", "eval_samples": "2"}
    graph, costs = measure(AGENTS, settings, tmp_path / "run")
    values = costs["values"]
    assert 1.0 <= values["solver.calls"]["value"] <= 2.0
    assert values["solver.calls"]["count"] == 16
    for name in ("solver.prompt", "solver.response"):
        assert values[name]["value"] > 0
    for group in ("solver.engine.", "solver.gang.", "host."):
        assert any(name.startswith(group) for name in values), f"nothing was measured of {group}*"
    plan = compile_graph(graph, laptop(), costs=costs)
    said = {d.subject: d.binding for d in plan.decisions if d.name == "cost"}
    assert said["solver.engine"].startswith("measured: ")
    assert said["solver.gang"].startswith("measured: ")
    assert plan.graph.agent("solver").expect["calls"]["mean"] == values["solver.calls"]["value"]


@pytest.mark.slow
def test_a_profile_sees_filters_sources_and_images(tmp_path: Path) -> None:
    graph, costs = measure(LETTERS, {"odd_only": "true"}, tmp_path / "letters")
    assert costs["values"]["odd.expect"]["value"] == pytest.approx(0.5, abs=0.2)
    assert costs["values"]["lines.size"]["value"] == 1000
    compile_graph(graph, laptop(), costs=costs)
    graph, costs = measure(DIGITS, {"batch": "8", "eval_samples": "4"}, tmp_path / "digits")
    assert any(name.startswith("vit.gang.") for name in costs["values"])
    unnest = graph.by_op("unnest")[0].name
    assert 0 < costs["values"][f"{unnest}.expect"]["value"] < 3
    compile_graph(graph, laptop(), costs=costs)


def test_times_of_cores_are_not_taken_for_an_accelerators(tmp_path: Path) -> None:
    plan = compile_graph(vlm(), gpus())
    with pytest.raises(ConfigurationError, match="has its models on 'gpu', and what is run here"):
        profile(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_line_finds_what_seconds_depend_on() -> None:
    line = Line(("each", "fixed"))
    for amount in (10, 20, 50, 100):
        line.add(0.5 + 0.02 * amount, amount, 1.0)
    found = line.measures()
    assert found["each"]["value"] == pytest.approx(0.02)
    assert found["fixed"]["value"] == pytest.approx(0.5)
    assert found["each"]["spread"] == pytest.approx(0.0, abs=1e-9)


def test_a_line_leaves_out_what_would_be_below_nothing() -> None:
    line = Line(("each", "fixed"))
    for amount in (10, 20, 50, 100):
        line.add(0.02 * amount - 0.1, amount, 1.0)
    assert line.measures()["fixed"]["value"] == 0.0
    assert line.measures()["each"]["value"] > 0.0
    assert Line(("each",)).measures() == {}


def test_samples_have_a_mean_a_spread_and_a_count() -> None:
    samples = Samples()
    assert samples.measure() is None
    for value in (1.0, 2.0, 3.0):
        samples.add(value)
    assert samples.measure() == {"value": 2.0, "spread": 0.5, "count": 3}
