"""Spare devices become engines of the agents whose calls hold up the step."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.passes.bind_agents import BindAgents
from flowgraph.passes.growth import LEAST_GAIN, grown
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.prediction import step_seconds
from flowgraph.passes.state import Choices, State
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


def of_one_engine_each(spare: int) -> State:
    """Bound, on one node with just so many devices more than the groups take."""
    _, bound = both(64)
    least = {
        group: min((o for o in own if o.layout.ranks == 1), key=lambda option: option.replicas)
        for group, own in bound.options.items()
        if group.endswith(".engine")
    }
    groups = tuple(
        replace(group, replicas=1, places=()) if group.name in least else group
        for group in bound.groups
    )
    costs = {name: replace(bound.costs[name], seconds=o.seconds) for name, o in least.items()}
    used = sum(group.replicas for group in groups if group.kind != "stage")
    node = replace(bound.cluster.nodes[0], devices=used + spare)
    return replace(
        bound,
        cluster=replace(bound.cluster, nodes=(node,)),
        groups=groups,
        layouts={**bound.layouts, **least},
        costs={**bound.costs, **costs},
    )


@pytest.mark.parametrize("spare", [1, 2, 3])
def test_spare_devices_go_where_they_save_most(spare: int) -> None:
    state = of_one_engine_each(spare)
    step = step_seconds(grown(state, Choices("test", state.pins)))
    for agent in state.graph.agents:
        group = f"{agent.name}.engine"
        other = replace(state, options={**state.options, group: (state.layouts[group],)})
        assert step <= step_seconds(grown(other, Choices("test", state.pins))) * (1 + 1e-9)


def test_pinned_counts_and_shared_cores_stay() -> None:
    matched, bound = both(64, {"solver.engines": 4, "verifier.engines": 1})
    assert engines(bound) == engines(matched)
    cores = run_passes(PIPELINE, marl(), laptop(cores=64))
    assert {group.replicas for group in cores.groups if group.kind == "engine"} == {1}


def test_with_no_device_to_spare_nothing_grows() -> None:
    _, bound = both(4)
    assert sum(group.replicas for group in bound.groups if group.kind != "stage") == 4


def of_two_kinds(slow: int, fast: int) -> Cluster:
    """A node of each kind of device; the slow one has six tenths of the other's speed."""
    base = gpus(1, fast)
    kind = replace(base.kinds[0], name="slow", flops=(("float32", 3.6e13),), bandwidth=1.8e12)
    node = replace(base.nodes[0], name="s0", device="slow", devices=slow)
    return replace(base, kinds=(*base.kinds, kind), nodes=(*base.nodes, node))


def on_slow(group: str) -> State:
    """As match-throughput might leave it: a group on the slow kind, with the fast one to spare."""
    names = [step.name for step in PIPELINE]
    until = PIPELINE[: names.index("bind-agents")]
    state = run_passes(
        until,
        talkative(),
        of_two_kinds(slow=8, fast=8),
        {"solver.engines": 1, "solver.engine_tp": 1},
    )
    now = replace(state.layouts[group], kind="slow")
    own = next(
        option
        for option in state.options[group]
        if (option.layout, option.kind, option.replicas) == (now.layout, now.kind, now.replicas)
    )
    cost = replace(state.costs[group], seconds=own.seconds)
    return replace(state, layouts={**state.layouts, group: own}, costs={**state.costs, group: cost})


@pytest.mark.parametrize("group", ["verifier.engine", "solver.gang"])
def test_a_part_gets_spare_devices_of_a_faster_kind_where_the_step_waits_for_it(group: str) -> None:
    before = on_slow(group)
    after = BindAgents().apply(before)
    moved = {d.subject: (d.value, d.runner_up) for d in after.decisions if d.name == "kind"}
    assert moved[group] == ("gpu", "slow")
    assert after.layouts[group].kind == "gpu"
    assert after.layouts[group].seconds < before.layouts[group].seconds
    assert after.costs[group].seconds == pytest.approx(after.layouts[group].seconds)


def test_no_device_of_a_plan_on_two_kinds_is_taken_twice() -> None:
    state = run_passes(PIPELINE[:-1], marl(), of_two_kinds(slow=2, fast=3))
    seats = [place for group in state.groups for place in group.places if place.device >= 0]
    assert len(set(seats)) == len(seats)
