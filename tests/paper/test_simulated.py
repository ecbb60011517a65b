"""Simulated, the papers' plans take what they predict; each remaining difference has its cause."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.cli.target import cluster_for
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.policy.step_time import expected
from flowgraph.runtime.simulate import Lengths, SimResult, simulate

PAPERS = Path(__file__).parents[2] / "examples" / "paper"
NEAR = 0.25


@cache
def plan_of(name: str, mode: str) -> Plan:
    graph = fg.load_graph(str(PAPERS / f"{name}.py"), {})
    return compile_graph(graph, cluster_for(graph, None), {"schedule.mode": mode})


def means(plan: Plan) -> Lengths:
    """Every prompt and response as long as the mean one, which is what plans are made of."""

    def of(what: str) -> dict[str, list[float]]:
        return {agent.name: [expected(agent.expect, what, 1.0)] for agent in plan.graph.agents}

    return Lengths(prompts=of("prompt"), responses=of("response"))


@cache
def simulated(name: str, mode: str, lengths: Callable[[Plan], Lengths] | None = None) -> SimResult:
    plan = plan_of(name, mode)
    result = simulate(plan, steps=3, lengths=lengths(plan) if lengths else None)
    assert result.outcome == "finished", result.cause
    return result


@pytest.mark.parametrize("mode", ["pipeline", "barrier"])
def test_flowtrain_takes_what_its_plan_predicts(mode: str) -> None:
    predicted = plan_of("flowtrain_32b", mode).prediction.step_seconds
    found = simulated("flowtrain_32b", mode).step_s["p50"]
    assert found == pytest.approx(predicted, rel=NEAR)


@pytest.mark.parametrize("mode", ["pipeline", "barrier"])
def test_flexmarl_takes_what_its_plan_predicts_when_all_calls_are_mean_ones(mode: str) -> None:
    predicted = plan_of("flexmarl_ma", mode).prediction.step_seconds
    found = simulated("flexmarl_ma", mode, means).step_s["p50"]
    assert found == pytest.approx(predicted, rel=NEAR)


def test_the_tail_of_flexmarls_calls_makes_its_steps_longer_than_the_mean_says() -> None:
    mean = simulated("flexmarl_ma", "pipeline", means).step_s["p50"]
    assert mean * 1.3 < simulated("flexmarl_ma", "pipeline").step_s["p50"] < mean * 3


def test_a_barrier_makes_no_step_shorter() -> None:
    pipeline = simulated("flowtrain_32b", "pipeline").step_s["p50"]
    barrier = simulated("flowtrain_32b", "barrier").step_s["p50"]
    assert pipeline <= barrier * 1.001


def test_a_papers_checkpoint_is_told_beside_its_steps() -> None:
    result = simulated("flowtrain_32b", "pipeline")
    lm = plan_of("flowtrain_32b", "pipeline").graph.module("lm")
    written = 3 * 2 * int(lm.description["parameters"])  # weights, two moments, of two bytes each
    assert result.checkpoint_s == pytest.approx(written / 8 / 1e9)
    assert result.evaluation_s == 0.0
    assert max(result.steps_s) < result.checkpoint_s
