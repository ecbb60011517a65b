"""One model of time: plans are weighed by it and state it, the simulator hands out work by it."""

from dataclasses import replace
from typing import Any

import pytest

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.passes.layout_costs import gang_estimate
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.prediction import chain_of, step_seconds, works_in_step
from flowgraph.passes.state import State
from flowgraph.passes.works import gang_work, only_models, places_of
from flowgraph.runtime.policy.step_time import estimated
from flowgraph.runtime.simulate import simulate
from tests.passes.graphs import gpus, laptop, marl, vlm

NEAR = 0.1


def placed(graph: Graph, cluster: Cluster, pins: dict[str, Any] | None = None) -> State:
    return run_passes(PIPELINE[:-1], graph, cluster, pins)


@pytest.mark.parametrize("graph", [marl(), vlm(), vlm(batch=256)], ids=["marl", "vlm", "large"])
def test_what_is_predicted_is_near_to_what_is_simulated(graph: Graph) -> None:
    plan = compile_graph(graph, laptop())
    result = simulate(plan, steps=4)
    assert plan.prediction.step_seconds == pytest.approx(result.step_s["p50"], rel=NEAR)
    assert result.bound_s < plan.prediction.step_seconds


def test_a_step_is_a_forward_then_the_training_then_the_forwards_backward() -> None:
    state = placed(vlm(), laptop())
    works = {work.name: work for work in works_in_step(state)}
    seconds = state.costs["vit.gang"].seconds
    assert works["encode"].seconds == pytest.approx(seconds / 3)
    assert works["encode.backward"].seconds == pytest.approx(seconds * 2 / 3)
    assert works["encode.backward"].reads == ("train-lm",)
    assert [name for name, _ in chain_of(state).path] == ["encode", "train-lm", "encode.backward"]


def test_calls_of_a_game_are_part_of_it_in_the_agents_order() -> None:
    works = {work.name: work for work in works_in_step(placed(marl(), laptop()))}
    game = next(name for name in works if name.endswith("/solver")).removesuffix("/solver")
    assert works[f"{game}/solver"].reads == (game,)
    assert works[f"{game}/verifier"].reads == (game, f"{game}/solver")
    assert {game, f"{game}/solver", f"{game}/verifier"} <= {*works["train-solver"].reads}


def test_the_simulator_takes_the_times_that_the_plan_states() -> None:
    plan = compile_graph(vlm(), laptop())
    slow = {
        name: seconds * 2 if name.startswith("lm.gang") else seconds
        for name, seconds in plan.prediction.times.items()
    }
    slower = replace(plan, prediction=replace(plan.prediction, times=slow))
    ratio = simulate(slower, steps=3).step_s["p50"] / simulate(plan, steps=3).step_s["p50"]
    assert 1.5 < ratio < 2.0  # the encoder's part stays what it was


def test_measured_costs_reach_the_simulator() -> None:
    costs = {
        "device": "core",
        "values": {
            "lm.gang.token_s": {"value": 1e-4},
            "lm.gang.item_s": {"value": 1e-3},
            "vit.gang.token_s": {"value": 2e-5},
            "host.sample_s": {"value": 3e-3},
        },
    }
    times = estimated(compile_graph(vlm(), laptop(), costs=costs))
    assert times.measured
    assert times.tasks["train-lm"].weight_s == pytest.approx(1e-4)
    assert times.tasks["train-lm"].item_s == pytest.approx(1e-3)
    encode = times.tasks["encode"]
    assert encode.backward_weight_s == pytest.approx(2 * encode.weight_s)
    assert sum(host.sample_s for host in times.hosts.values()) == pytest.approx(3e-3)
    assert not estimated(compile_graph(vlm(), laptop())).measured


@pytest.mark.parametrize(
    "pins",
    [
        {"lm.tp": 2, "lm.dp": 2},
        {"lm.pp": 2, "lm.dp": 1},
        {"lm.dp": 4},
        {"lm.tp": 2, "lm.pp": 2, "lm.dp": 2},
    ],
)
def test_ranks_that_work_alone_are_as_fast_together_as_their_layout(pins: dict[str, int]) -> None:
    state = placed(vlm(batch=512), gpus(2, 8), pins)
    plan = compile_graph(vlm(batch=512), gpus(2, 8), pins)
    models, place = only_models(state), places_of(state)[0]
    work = gang_work(models, state.graph.module("lm"), place)
    laid = state.layouts["lm.gang"]
    micro = laid.micro_batch or work.micro
    times = estimated(plan).tasks["train-lm"]
    tokens = work.tokens / laid.layout.ranks
    seconds = tokens * times.weight_s + max(1.0, work.tokens / laid.layout.dp / micro) * (
        times.item_s / (laid.layout.ranks / laid.layout.dp)
    )
    told = gang_estimate(replace(work, trained=True, updates=0), laid.layout, place, micro)
    assert seconds == pytest.approx(told.seconds, rel=1e-6)


def test_a_measured_engine_is_simulated_as_measured() -> None:
    values = {"solver.engine.iteration_s": {"value": 2e-3}, "solver.engine.row_s": {"value": 0.0}}
    plan = compile_graph(marl(), laptop(), costs={"device": "core", "values": values})
    times = estimated(plan).engines["solver.engine"]
    assert times.iteration(1) == times.iteration(64) == 2e-3  # reading the weights is in it
    assert estimated(plan).engines["verifier.engine"].read_s > 0


def two_kinds() -> Cluster:
    fast = gpus(1, 4)
    slow = DeviceKind(
        name="old", kind="cuda", flops=(("float32", 3e12),), memory_bytes=40 << 30, bandwidth=2e11
    )
    node = Node(name="m", device="old", devices=4, cores=32, memory_bytes=256 << 30)
    return replace(fast, kinds=(*fast.kinds, slow), nodes=(*fast.nodes, node))


def test_times_are_of_the_kind_of_device_that_a_group_is_on() -> None:
    plan = compile_graph(marl(batch=256), two_kinds())
    kinds = {node.name: node.device for node in plan.cluster.nodes}
    on = {g.name: kinds[g.places[0].node] for g in plan.groups if g.kind != "stage"}
    assert set(on.values()) == {"gpu", "old"}
    bare = replace(plan, prediction=replace(plan.prediction, times={}))
    told, described = estimated(plan), estimated(bare)
    sizes = {m.name: m.description["parameters"] * 4 for m in plan.graph.modules}
    for name, times in told.engines.items():
        bandwidth = plan.cluster.kind(on[name]).bandwidth
        assert times.read_s == pytest.approx(sizes[plan.group(name).module] / bandwidth)
        assert described.engines[name].read_s == pytest.approx(times.read_s)


def test_behind_a_barrier_trainers_begin_when_all_games_have_ended() -> None:
    barrier = {"schedule.mode": "barrier"}
    shares = {work.name: work.share for work in works_in_step(placed(marl(), gpus(1, 8), barrier))}
    piped = {work.name: work.share for work in works_in_step(placed(marl(), gpus(1, 8)))}
    trainers = [name for name in shares if name.startswith("train-") and "." not in name]
    assert trainers
    assert all(shares[name] == 1.0 for name in trainers)
    assert any(piped[name] < 1.0 for name in trainers)


def test_an_encoder_is_on_the_trainers_side_of_a_barrier() -> None:
    pins: dict[str, Any] = {"vit.ranks": 1, "lm.ranks": 1}
    piped = placed(vlm(batch=1024), gpus(1, 8), pins)
    barred = placed(vlm(batch=1024), gpus(1, 8), {**pins, "schedule.mode": "barrier"})
    assert chain_of(barred).seconds == chain_of(piped).seconds


def test_trainers_that_take_turns_end_the_step_one_after_the_other() -> None:
    state = placed(marl(), gpus(1, 3))
    works = {work.name: work for work in works_in_step(state)}
    order = sorted((g for g in state.groups if g.kind == "gang"), key=lambda group: group.turn)
    first, second = (f"train-{group.module}" for group in order)
    assert works[second].behind == (first,)
    assert works[first].behind == ()
    alone = tuple(replace(group, shares="", turn=0) for group in state.groups)
    assert step_seconds(state) > step_seconds(replace(state, groups=alone))


def test_as_many_trainers_share_as_make_the_step_shortest() -> None:
    graph = marl()
    for devices in (3, 4):
        plan: Plan = compile_graph(graph, gpus(1, devices))
        sharers = [group for group in plan.groups if group.shares]
        assert len(sharers) == (1 if devices == 3 else 0)
