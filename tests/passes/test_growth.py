"""Spare devices become engines of the agents whose calls hold up the step."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.graph import Graph
from flowgraph.passes.bind_agents import BindAgents
from flowgraph.passes.growth import LEAST_GAIN
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.prediction import step_seconds
from flowgraph.passes.state import State
from tests.passes.graphs import gpus, laptop, marl


def talkative() -> Graph:
    """Long answers, a few at a time: the verifier has half of the solver's work, behind it."""
    graph = marl(batch=64)
    calls = {"solver": 2, "verifier": 1}
    agents = tuple(
        replace(
            agent,
            expect={"calls": calls[agent.name], "prompt": 64, "response": 512},
            sampling={**agent.sampling, "max_length": 1024},
        )
        for agent in graph.agents
    )
    sized = {"parameters": 400_000_000, "layers": 24, "width": 1024, "heads": 16, "kv_heads": 16}
    modules = tuple(
        replace(m, description={**m.description, **sized, "head_width": 64, "max_length": 1024})
        for m in graph.modules
    )
    return replace(graph, agents=agents, modules=modules)


def both(devices: int, pins: dict[str, Any] | None = None) -> tuple[State, State]:
    """Before and after growing: with the counts that match-throughput chose, and in the end."""
    names = [step.name for step in PIPELINE]
    until = names.index("bind-agents")
    matched = run_passes(PIPELINE[:until], talkative(), gpus(devices // 4, 4), pins)
    return matched, BindAgents().apply(matched)


def engines(state: State) -> dict[str, int]:
    return {name: n for name, n in state.counts.items() if name.endswith(".engine")}


def as_matched(matched: State, bound: State) -> State:
    """Bound, with the counts that were matched."""
    groups = tuple(
        replace(group, replicas=matched.counts.get(group.name, group.replicas))
        for group in bound.groups
    )
    return replace(matched, groups=groups)


@pytest.mark.parametrize("devices", [16, 64])
def test_more_engines_make_the_step_shorter_and_fit(devices: int) -> None:
    matched, bound = both(devices, {"solver.engines": 2})
    before, after = engines(matched), engines(bound)
    assert all(after[name] >= n for name, n in before.items())
    assert sum(group.replicas for group in bound.groups if group.kind != "stage") <= devices
    assert {g.name: g.replicas for g in bound.groups if g.kind != "stage"} == dict(bound.counts)
    added = sum(after.values()) - sum(before.values())
    assert added >= 1
    saved = step_seconds(as_matched(matched, bound)) / step_seconds(bound)
    assert saved >= (1 - LEAST_GAIN) ** -added
    placed = run_passes(PIPELINE, talkative(), gpus(devices // 4, 4), {"solver.engines": 2})
    assert {g.name: len(g.places) for g in placed.groups} == {
        g.name: g.replicas for g in bound.groups
    }


def test_an_agent_that_is_not_the_slowest_gets_more_where_others_wait_for_it() -> None:
    matched, bound = both(64, {"solver.engines": 4})
    assert engines(bound)["verifier.engine"] > engines(matched)["verifier.engine"]
    told = {d.subject: d for d in bound.decisions if (d.by, d.name) == ("bind-agents", "engines")}
    assert told["verifier"].value == engines(bound)["verifier.engine"]
    assert "its calls hold up the step" in told["verifier"].binding
    assert "% a step" in str(told["verifier"].runner_up)


def test_pinned_counts_and_shared_cores_stay() -> None:
    matched, bound = both(64, {"solver.engines": 4, "verifier.engines": 1})
    assert engines(bound) == engines(matched)
    cores = run_passes(PIPELINE, marl(), laptop(cores=64))
    assert {group.replicas for group in cores.groups if group.kind == "engine"} == {1}


def test_with_no_device_to_spare_nothing_grows() -> None:
    _, bound = both(4)
    assert sum(group.replicas for group in bound.groups if group.kind != "stage") == 4
