"""What is gathered of a plan: it adds up, leaves nothing out, and is whole as JSON."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from flowgraph.inspect.facts import facts_of
from flowgraph.inspect.plain import described
from flowgraph.ir.plan import Plan, Prediction
from flowgraph.passes import compile_graph
from tests.inspect.plans import PLANS, example
from tests.passes.graphs import gpus, laptop, marl, vlm

every_plan = pytest.mark.parametrize("make", PLANS.values(), ids=PLANS)
Make = Callable[[], Plan]


@every_plan
def test_the_legs_of_the_critical_path_add_up_to_the_step(make: Make) -> None:
    facts = facts_of(make())
    assert facts.step_s > 0
    assert sum(leg.seconds for leg in facts.path.legs) == pytest.approx(facts.step_s)
    tasks = {task.name for task in facts.plan.tasks}
    assert all(leg.task in tasks for leg in facts.path.legs if leg.group)


@every_plan
def test_without_a_path_in_the_plan_what_is_busy_longest_is_the_path(make: Make) -> None:
    """A plan of an earlier compiler, or one whose crowded cores set the time."""
    plan = make()
    prediction = replace(plan.prediction, path=(), step_seconds=0.0)
    busiest = max(prediction.seconds.values())
    facts = facts_of(replace(plan, prediction=prediction))
    assert facts.path.seconds >= busiest * (1 - 1e-9)
    assert facts.path.kind in ("part", "cores")


def test_time_that_no_path_accounts_for_is_named_as_waiting() -> None:
    plan = compile_graph(vlm(), gpus())
    prediction = replace(plan.prediction, path=(), step_seconds=1.0)
    legs = facts_of(replace(plan, prediction=prediction)).path.legs
    assert legs[-1].task == "waiting for one another"
    assert sum(leg.seconds for leg in legs) == pytest.approx(1.0)


def test_crowded_cores_share_their_time_among_all_who_use_them() -> None:
    plan = compile_graph(marl(), laptop(cores=2))
    seconds = dict.fromkeys(plan.prediction.seconds, 2.0)
    crowded = Prediction(step_seconds=len(seconds) * 2.0 / 2, seconds=seconds)
    path = facts_of(replace(plan, prediction=crowded)).path
    assert (path.kind, path.at) == ("cores", "local")
    assert {leg.group: leg.seconds for leg in path.legs} == dict.fromkeys(seconds, 1.0)


@every_plan
def test_every_process_is_on_one_kind_of_used_devices(make: Make) -> None:
    plan = make()
    facts = facts_of(plan)
    counts: dict[str, int] = {}
    for used in facts.devices:
        for group, count in used.processes.items():
            counts[group] = counts.get(group, 0) + count * used.count
    assert counts == {group.name: group.replicas for group in plan.groups}


@every_plan
def test_every_channel_has_a_maker_and_readers(make: Make) -> None:
    facts = facts_of(make())
    assert [way.stream for way in facts.ways] == [c.stream for c in facts.plan.channels]
    assert all(way.makers and way.readers for way in facts.ways)


@every_plan
def test_what_a_process_holds_is_the_sum_of_what_it_is_made_of(make: Make) -> None:
    prediction = make().prediction
    for group, terms in prediction.memory_terms.items():
        assert sum(terms.values()) == prediction.memory_bytes[group]


@every_plan
def test_the_json_holds_all_that_is_promised(make: Make) -> None:
    plan = make()
    told = json.loads(json.dumps(described(facts_of(plan))))
    assert told["step_s"] == plan.prediction.step_seconds
    assert told["rate"] == pytest.approx(1 / told["step_s"])
    assert sum(leg["seconds"] for leg in told["critical_path"]) == pytest.approx(told["step_s"])
    held = {group.module for group in plan.groups if group.module}
    assert set(told["modules"]) == held
    for module in told["modules"].values():
        assert {"devices", "layout", "replicas", "reason", "runner_up", "measured"} <= set(module)
        assert module["devices"] >= 1
        assert module["reason"]
    for key in ("devices", "channels", "staleness", "pins", "neighbours", "schedule", "plan"):
        assert key in told
    used = {(p.node, p.device) for g in plan.groups for p in g.places if p.device >= 0}
    assert told["devices_used"] == len(used)


def test_devices_of_modules_that_share_none_add_up_to_those_used() -> None:
    told = described(facts_of(compile_graph(marl(), gpus())))
    assert sum(module["devices"] for module in told["modules"].values()) == told["devices_used"]


def test_a_device_that_trainers_use_in_turn_holds_the_largest_of_those_that_leave() -> None:
    plan = compile_graph(marl(), gpus(1, 3))
    turns = [group for group in plan.groups if group.kind == "gang"]
    assert {group.shares for group in turns} != {""}
    away = tuple(replace(g, residency="offloaded") if g.kind == "gang" else g for g in plan.groups)
    facts = facts_of(replace(plan, groups=away))
    (shared,) = [used for used in facts.devices if len(used.processes) == 2]
    held = [plan.prediction.memory_bytes[group.name] for group in turns]
    assert shared.memory_bytes == max(held)


def test_an_edge_says_how_many_updates_its_samples_may_be_behind() -> None:
    plan = compile_graph(marl(), laptop())
    late = tuple(
        replace(s, delay=3) if s.name == "solver.weights" else s for s in plan.graph.streams
    )
    edges = facts_of(replace(plan, graph=replace(plan.graph, streams=late))).edges
    assert {edge.module: edge.behind for edge in edges} == {"solver": 2, "verifier": 0}
    assert all(edge.made_by == ("games",) for edge in edges)


def test_only_samples_that_a_trained_module_made_can_be_stale() -> None:
    edges = {edge.module: edge for edge in facts_of(compile_graph(vlm(), laptop())).edges}
    assert edges["vit"].made_by == ("encode",)
    assert edges["lm"].made_by == ()


def test_a_stage_that_feeds_no_training_makes_none_of_its_samples() -> None:
    plan = compile_graph(vlm(), laptop())
    aside = replace(plan.graph.stage("encode"), name="aside", outputs=("aside",))
    features = replace(plan.graph.stream("features"), name="aside", producer="aside")
    graph = replace(
        plan.graph,
        stages=(*plan.graph.stages, aside),
        streams=(*plan.graph.streams, features),
    )
    edges = {edge.module: edge for edge in facts_of(replace(plan, graph=graph)).edges}
    assert edges["vit"].made_by == ("encode",)


def test_measured_parts_are_told_apart_from_estimated_ones() -> None:
    plan = example("vlm_digits", "laptop")
    some = replace(plan.prediction, measured=("lm.gang",))
    facts = facts_of(replace(plan, prediction=some))
    assert facts.basis == "measured, but for host, vit.gang"
    modules = described(facts)["modules"]
    assert (modules["lm"]["measured"], modules["vit"]["measured"]) == (True, False)
    agents = compile_graph(marl(), laptop())
    half = replace(agents.prediction, measured=("solver.gang", "verifier.gang", "verifier.engine"))
    found = described(facts_of(replace(agents, prediction=half)))["modules"]
    assert (found["solver"]["measured"], found["verifier"]["measured"]) == (False, True)
    whole = replace(plan.prediction, measured=tuple(plan.prediction.seconds))
    assert facts_of(replace(plan, prediction=whole)).basis == "measured"
