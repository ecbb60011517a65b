"""A plan's prediction and the simulation of it rest on the same numbers, and so come out alike."""

from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.cli.target import cluster_for
from flowgraph.ir.graph import Graph
from flowgraph.passes import compile_graph
from flowgraph.runtime.simulate import simulate
from tests.passes.graphs import filtered, laptop

EXAMPLES = Path(__file__).parents[3] / "examples"
NEAR = 0.1


def example(name: str) -> Graph:
    return fg.load_graph(str(EXAMPLES / f"{name}.py"), {})


@pytest.mark.parametrize("mode", ["pipeline", "barrier"])
@pytest.mark.parametrize("name", ["marl_arithmetic", "vlm_digits"])
def test_examples_take_on_a_laptop_what_their_plans_predict(name: str, mode: str) -> None:
    graph = example(name)
    plan = compile_graph(graph, cluster_for(graph, None), {"schedule.mode": mode})
    result = simulate(plan, steps=4)
    assert result.step_s["p50"] == pytest.approx(plan.prediction.step_seconds, rel=NEAR)


def test_samples_that_filters_reject_are_in_the_prediction() -> None:
    plan = compile_graph(filtered(), laptop())
    result = simulate(plan, steps=4)
    assert result.step_s["p50"] == pytest.approx(plan.prediction.step_seconds, rel=NEAR)
