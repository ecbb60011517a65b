"""What differs between two plans, in words: each change, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.inspect.differences import Difference, differences
from flowgraph.inspect.facts import facts_of
from flowgraph.ir.graph import Graph
from flowgraph.ir.location import Location
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from tests.inspect.plans import PLANS, example
from tests.passes.graphs import gpus, laptop, marl, vlm


def between(before: Plan, after: Plan) -> list[Difference]:
    return list(differences(facts_of(before), facts_of(after)))


def said(before: Plan, after: Plan) -> list[str]:
    return [difference.said for difference in between(before, after)]


def agents() -> Plan:
    return compile_graph(marl(), laptop())


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS)
def test_a_plan_does_not_differ_from_itself(make: Any) -> None:
    assert said(make(), make()) == []


def test_where_files_lie_and_on_which_lines_is_no_difference() -> None:
    plan = agents()
    moved = tuple(replace(s, at=Location("other.py", 99)) for s in plan.graph.stages)
    elsewhere = replace(plan, graph=replace(plan.graph, root="/elsewhere", stages=moved))
    assert said(plan, elsewhere) == []


def graph_with(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, graph=replace(plan.graph, **changes))


def without(graph: Graph, stage: str) -> Graph:
    return replace(graph, stages=tuple(s for s in graph.stages if s.name != stage))


def test_changes_of_the_graph_are_told_by_stage_and_attribute() -> None:
    plan = agents()
    stages = tuple(
        replace(s, attributes={**s.attributes, "batch": 32}) if s.name == "train-solver" else s
        for s in plan.graph.stages
    )
    assert said(plan, graph_with(plan, stages=stages)) == [
        "stage train-solver: batch 16 -> 32",
    ]
    assert said(plan, graph_with(plan, steps=7)) == ["steps 7 instead of 100"]
    assert "setting lr is new: 0.1" in said(plan, graph_with(plan, settings={"lr": 0.1}))
    unset = graph_with(plan, settings={**plan.graph.settings, "model": None})
    assert said(plan, unset) == ["setting model is new: none"]
    assert said(unset, plan) == ["setting model is gone"]


def test_changed_code_is_told_by_its_digest() -> None:
    plan = agents()
    stages = tuple(
        replace(s, function=replace(s.function, digest="0123456789")) if s.function else s
        for s in plan.graph.stages
    )
    told = said(plan, graph_with(plan, stages=stages))
    assert any("the code of" in line and "01234567" in line for line in told)


def test_a_stage_that_is_gone_or_new_is_told() -> None:
    plan = compile_graph(vlm(), laptop())
    fewer = replace(plan, graph=without(plan.graph, "held-out"))
    assert said(plan, fewer) == ["stage held-out is gone"]
    assert said(fewer, plan) == ["stage held-out is new"]


def test_another_cluster_changes_layouts_devices_and_the_step() -> None:
    plan, other = compile_graph(vlm(), gpus(1, 2)), compile_graph(vlm(), gpus(2, 4))
    told = said(plan, other)
    assert "the cluster has 8 devices instead of 2" in told
    assert any(line.startswith("a step is predicted to take") for line in told)
    assert any(line.startswith("lm.gang runs as") and "dp" in line for line in told)
    assert any(line.startswith("devices used") for line in told)


def test_pins_and_what_they_change_are_told() -> None:
    plan, pinned = agents(), compile_graph(marl(), laptop(), {"solver.engines": 2})
    told = said(plan, pinned)
    assert "pin solver.engines is new: 2" in told
    assert "solver.engine runs as 2 engines instead of 1 engine" in told
    assert "pin solver.engines is gone" in said(pinned, plan)


def test_channels_schedules_and_staleness_are_told() -> None:
    plan = agents()
    wider = replace(
        plan,
        channels=(replace(plan.channels[0], capacity_bytes=1 << 30), *plan.channels[1:]),
        schedule=replace(plan.schedule, ahead=1),
        pool_bytes=plan.pool_bytes * 2,
    )
    told = said(plan, wider)
    name = plan.channels[0].stream
    assert any(line.startswith(f"stream {name} holds at most 1 GiB") for line in told)
    assert "schedule ahead 1 instead of 2" in told
    assert any("pool" in line for line in told)
    late = tuple(
        replace(s, delay=2) if s.name == "solver.weights" else s for s in plan.graph.streams
    )
    assert any(
        "1 update behind instead of 0" in x for x in said(plan, graph_with(plan, streams=late))
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"rooms": ()},
        {"decisions": ()},
        {"neighbours": ()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_no_sentence_tells_of_is_named_all_the_same(changes: dict[str, Any]) -> None:
    plan = agents()
    (name,) = changes
    assert said(plan, replace(plan, **changes)) == [f"{name} of the plan differ"]


def test_every_difference_is_plain_data_about_something_known() -> None:
    from flowgraph.cli.commands.diff import TITLES

    found = between(example("vlm_digits", "laptop"), example("marl_arithmetic", "node-8-gpu"))
    assert len(found) > 20
    for difference in found:
        assert difference.about in TITLES
        for value in (difference.before, difference.after):
            assert value is None or isinstance(value, bool | int | float | str)
