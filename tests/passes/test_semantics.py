"""Each pass leaves the meaning alone: the reference executor makes the same weights of the graph
before it and after it, and of plans that decide differently."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import flowgraph as fg
from flowgraph.ir.binary import encode
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes import PIPELINE, compile_graph
from flowgraph.passes.pipeline import plan_of, run_passes
from flowgraph.passes.state import State
from tests.passes.graphs import laptop

FILE = Path(__file__).parent / "counting.py"
GRAPHS = ("filtered", "twins", "pictures", "games")
PASSES = tuple(step.name for step in PIPELINE)
REWRITING = ("simplify", "plan-packing")
"""Passes that change stages, left out where a graph is planned as it stands."""

BARE = tuple(step for step in PIPELINE if step.name not in REWRITING)

Weights = Mapping[str, str]
"""Digests of the modules' weights after the last step."""


def load(name: str) -> Graph:
    return fg.load_graph(f"{FILE}:{name}", {})


def stages_of(graph: Graph) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [(s.name, s.op, s.inputs, s.outputs) for s in graph.stages]


def as_it_stands(name: str) -> list[Plan]:
    """Plans of the graph before the first pass and after each, which rewrite nothing more."""
    graphs = [load(name)]

    def watch(_: str, state: State) -> None:
        graphs.append(state.graph)

    run_passes(PIPELINE, graphs[0], laptop(), watch=watch)
    return [plan_of(run_passes(BARE, graph, laptop())) for graph in graphs]


def digests(plans: Sequence[Plan], folder: Path) -> list[Weights]:
    """Weights that the reference executor makes of each plan; equal plans are run once."""
    files: dict[bytes, Path] = {}
    for plan in plans:
        data = encode(plan)
        if data not in files:
            files[data] = folder / f"{len(files)}.fgplan"
            files[data].write_bytes(data)
    names = [str(file) for file in files.values()]
    command = [sys.executable, "-m", "tests.passes.semantics_process", str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(zip(files, json.loads(done.stdout.splitlines()[-1]), strict=True))
    return [found[encode(plan)] for plan in plans]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Weights]]:
    """By graph: weights before the first pass, and after each of PASSES."""
    plans = {name: as_it_stands(name) for name in GRAPHS}
    found = iter(
        digests([p for own in plans.values() for p in own], tmp_path_factory.mktemp("runs"))
    )
    return {name: [next(found) for _ in own] for name, own in plans.items()}


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("after", PASSES)
def test_the_weights_are_the_same_before_and_after_each_pass(
    after: str, graph: str, weights: Mapping[str, list[Weights]]
) -> None:
    at = PASSES.index(after)
    assert weights[graph][at] == weights[graph][at + 1]


@pytest.mark.slow
def test_the_weights_are_of_training_and_differ_from_graph_to_graph(
    weights: Mapping[str, list[Weights]],
) -> None:
    trained = [found[0]["one"] for found in weights.values()]
    assert len(set(trained)) == len(GRAPHS)


@pytest.mark.parametrize("name", GRAPHS)
def test_simplify_changes_each_of_these_graphs(name: str) -> None:
    until = PASSES.index("simplify") + 1
    after = run_passes(PIPELINE[:until], load(name), laptop())
    assert stages_of(after.graph) != stages_of(load(name))
    assert {d.name for d in after.decisions if d.by == "simplify"} <= {"before", "merged"}


@pytest.mark.slow
def test_the_weights_are_the_same_whatever_the_passes_decide(tmp_path: Path) -> None:
    graph = load("filtered")
    pins: list[dict[str, Any]] = [
        {},
        {"one.ranks": 2, "host.replicas": 2},
        {"schedule.ahead": 1, "schedule.unit": 2},
        {"schedule.mode": "barrier"},
    ]
    plans = [compile_graph(graph, laptop(), pin) for pin in pins]
    costs = {"values": {"starts_odd.expect": {"value": 0.4}, "one.gang.token_s": 1.0}}
    plans.append(compile_graph(graph, laptop(), costs=costs))
    found = digests(plans, tmp_path)
    assert all(one == found[0] for one in found)


def test_filters_move_before_all_maps_that_keep_what_they_read() -> None:
    graph = compile_graph(load("filtered"), laptop()).graph
    order = [(stage.name, *stage.inputs) for stage in graph.stages]
    assert order == [
        ("lines",),
        ("starts_odd", "lines"),
        ("shift", "shift"),
        ("ends_early", "on"),
        ("on", "starts_odd"),
        ("train-one", "ends_early"),
    ]
    assert graph.stream("shift").type == graph.stream("lines").type


def test_rates_follow_the_stages_that_simplify_moves_and_merges() -> None:
    plan = compile_graph(load("twins"), laptop())
    assert set(plan.prediction.rates) == {s.name for s in plan.graph.streams if s.kind == "data"}


def test_chains_that_are_alike_become_one() -> None:
    merged = compile_graph(load("twins"), laptop()).graph
    assert len(merged.by_op("map")) == len(merged.by_op("filter")) == 1
    seen = compile_graph(load("pictures"), laptop()).graph
    assert len(seen.by_op("unnest")) == len(seen.by_op("apply")) == 1
