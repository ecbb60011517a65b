"""Each pass leaves the meaning alone: the reference executor makes the same weights of the graph
before it and after it, and of plans that decide differently."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
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

REWRITING = ("simplify", "plan-packing")
"""Passes that change stages. lower-edges adds streams that no stage reads."""

BARE = tuple(step for step in PIPELINE if step.name not in REWRITING)
GRAPH = Path(__file__).parent / "counting.py"


def counting() -> Graph:
    """Both maps are alike, and the filter reads what its map hands on."""
    graph = fg.load_graph(str(GRAPH), {})
    more: dict[str, dict[str, Any]] = {
        "shift-one": {"keeps": ("start",)},
        "odd-one": {"reads": ("start",)},
    }
    stages = tuple(
        replace(s, attributes={**s.attributes, **more.get(s.name, {})}) for s in graph.stages
    )
    return replace(graph, stages=stages)


def twins() -> Graph:
    """Without the filter, so that the maps are alike and read alike."""
    graph = counting()
    stages = tuple(
        replace(s, attributes={k: v for k, v in s.attributes.items() if k != "keeps"})
        for s in graph.stages
    )
    return replace(graph, stages=stages)


def bare(graph: Graph) -> Plan:
    return plan_of(run_passes(BARE, graph, laptop()))


def graphs_around(graph: Graph, name: str) -> tuple[Graph, Graph]:
    """The graph before the pass of that name, and after it."""
    seen = [graph]

    def watch(_: str, state: State) -> None:
        seen.append(state.graph)

    steps = [step.name for step in PIPELINE]
    run_passes(PIPELINE[: steps.index(name) + 1], graph, laptop(), watch=watch)
    return seen[-2], seen[-1]


def digests(plans: Sequence[Plan], folder: Path) -> list[dict[str, str]]:
    """Weights that the reference executor makes of each plan."""
    files = []
    for i, plan in enumerate(plans):
        file = folder / f"{i}.fgplan"
        file.write_bytes(encode(plan))
        files.append(str(file))
    command = [sys.executable, "-m", "tests.passes.semantics_process", str(folder), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_the_weights_are_the_same_before_and_after_each_pass_that_changes_stages(
    tmp_path: Path,
) -> None:
    plans, changed = [], []
    for make in (counting, twins):
        for name in REWRITING:
            before, after = graphs_around(make(), name)
            changed += [f"{make.__name__} {name}"] if before.stages != after.stages else []
            plans += [bare(before), bare(after)]
    assert changed == ["counting simplify", "twins simplify"]
    found = digests(plans, tmp_path)
    for i in range(0, len(found), 2):
        assert found[i] == found[i + 1]
    assert len({digest for one in found for digest in one.values()}) > 1


@pytest.mark.slow
def test_the_weights_are_the_same_whatever_the_passes_decide(tmp_path: Path) -> None:
    pins: list[dict[str, Any]] = [
        {},
        {"one.ranks": 2, "host.replicas": 2},
        {"schedule.ahead": 1, "schedule.unit": 2},
        {"schedule.mode": "barrier"},
    ]
    plans = [compile_graph(counting(), laptop(), pin) for pin in pins]
    costs = {"values": {"odd-one.expect": {"value": 0.4}, "one.gang.token_s": 1.0}}
    plans.append(compile_graph(counting(), laptop(), costs=costs))
    found = digests(plans, tmp_path)
    assert all(one == found[0] for one in found)


def test_simplify_moves_the_filter_and_merges_the_maps() -> None:
    _, moved = graphs_around(counting(), "simplify")
    assert moved.stage("odd-one").inputs == ("lines",)
    assert moved.stage("shift-one").inputs == ("shift-one",)
    _, merged = graphs_around(twins(), "simplify")
    assert [s.name for s in merged.by_op("map")] == ["shift-one"]
    assert merged.stage("train-other").inputs == ("shift-one",)
