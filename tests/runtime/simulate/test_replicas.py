"""Ranks that work on an item together are one worker of a simulation, on all of their devices."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.policy.step_time import StepTimes, estimated
from flowgraph.runtime.simulate import Fault, Faults, SimResult, simulate
from flowgraph.runtime.simulate.replicas import by_replica, faults_together, times_together
from flowgraph.runtime.simulate.timeline import Timeline
from flowgraph.runtime.simulate.workload import Workload
from flowgraph.runtime.simulate.world import Setting, World
from tests.passes.graphs import gpus, marl, vlm

SPLIT = {"lm.tp": 2, "lm.pp": 2, "lm.dp": 2}


@cache
def split() -> Plan:
    return compile_graph(vlm(batch=32), gpus(2, 8), SPLIT)


@cache
def instances() -> Plan:
    return compile_graph(marl(batch=4), gpus(), {"solver.engine_tp": 2, "solver.engines": 2})


def busy(result: SimResult, group: str, kind: str) -> float:
    """Seconds of work of that kind by all workers of the group."""
    spans = [s for s in result.timeline.spans if s.worker.startswith(f"{group}-")]
    return sum(span.work for span in spans if span.kind == kind)


def simulated(plan: Plan, **changes: Any) -> SimResult:
    result = simulate(plan, steps=3, **changes)
    assert result.outcome == "finished", result.cause
    return result


def test_a_replica_is_one_worker_and_keeps_the_places_of_its_ranks() -> None:
    plan = split()
    assert plan.group("lm.gang").replicas == len(plan.group("lm.gang").places) == 8
    group = by_replica(plan).group("lm.gang")
    assert (group.replicas, group.places) == (2, plan.group("lm.gang").places)
    workers = {span.worker for span in simulated(plan).timeline.spans if span.kind == "train"}
    assert workers == {"lm.gang-0", "lm.gang-1"}


def test_a_plan_whose_ranks_work_alone_stays_as_it_is() -> None:
    plan = compile_graph(vlm(batch=32), gpus(), {"lm.tp": 1, "lm.pp": 1, "lm.dp": 4})
    times = estimated(plan)
    assert by_replica(plan) == plan
    assert times_together(plan, times) == times


def test_ranks_together_take_an_item_in_a_share_of_what_one_would_take_alone() -> None:
    plan = split()
    alone = estimated(plan)
    together = times_together(plan, alone)
    one, all_ = alone.tasks["train-lm"], together.tasks["train-lm"]
    assert all_.forward(1000.0, 0) == pytest.approx(one.forward(1000.0, 0) / 4)
    assert together.saves["lm"] == pytest.approx(alone.saves["lm"] / 4)
    assert together.updates == alone.updates  # of a rank's share of the weights already
    assert together.tasks["encode"] == alone.tasks["encode"]


def test_an_engine_of_two_devices_is_one_worker_with_both_devices_speed() -> None:
    plan = instances()
    group = plan.group("solver.engine")
    assert group.layout.tp == 2
    assert by_replica(plan).group("solver.engine").replicas == group.replicas // 2
    alone = estimated(plan).engines["solver.engine"]
    both = times_together(plan, estimated(plan)).engines["solver.engine"]
    assert both.row_s == alone.row_s / 2
    assert both.prefill_token_s == alone.prefill_token_s / 2
    assert both.read_s == alone.read_s  # of half of the weights already


def test_all_devices_of_a_replica_are_busy_while_it_works() -> None:
    plan = split()
    times = replace(estimated(plan), event_s=0.0, wire_s=0.0)
    result = simulated(plan, times=times)
    others = sum(
        span.work
        for span in result.timeline.spans
        if span.worker.startswith("vit.gang-") and span.kind
    )
    own = busy(result, "lm.gang", "train") + busy(result, "lm.gang", "update")
    own += busy(result, "lm.gang", "evaluate")
    devices = result.utilisation["devices"]["gpu"] * result.seconds * plan.cluster.total_devices
    assert devices == pytest.approx(4 * own + others, rel=1e-6)


def test_a_replica_has_done_its_work_when_its_slowest_device_has() -> None:
    plan = by_replica(split())
    setting = Setting(
        plan=plan,
        options=RunOptions(run_dir="simulated", steps=1),
        times=StepTimes(),
        workload=Workload(plan, 0),
        faults=Faults(),
    )
    world = World(setting, Timeline({}))
    ended: list[float] = []
    shared = plan.group("lm.gang").places[3]
    world.cores[(shared.node, shared.device)].start(5.0, lambda: None)
    world.actors["lm.gang-0"].work(1.0, "train", lambda: ended.append(world.clock.now))
    world.actors["lm.gang-1"].work(1.0, "train", lambda: ended.append(world.clock.now))
    while world.clock.turn():
        pass
    assert ended == [1.0, 2.0]  # the first replica has half of the device that another uses too


def test_what_befalls_a_rank_befalls_its_replica() -> None:
    slow = Faults((Fault(kind="slow", worker="lm.gang-7", factor=3.0),), seed=5)
    moved = faults_together(split(), slow)
    assert (moved.faults[0].worker, moved.seed) == ("lm.gang-1", 5)
    assert simulated(split(), faults=slow).steps_s > simulated(split()).steps_s
    crash = Faults((Fault(kind="crash", worker="lm.gang-6", start_s=0.01),))
    assert simulated(split(), faults=crash).restarts == 1


@pytest.mark.parametrize("measured", [False, True])
def test_an_estimated_checkpoint_is_beside_the_steps_and_a_measured_one_within(
    measured: bool,
) -> None:
    plan = split()
    times: StepTimes = replace(estimated(plan), saves={"lm": 4.0, "vit": 0.0})
    times = replace(times, saves_measured=measured)
    result = simulated(plan, times=times, checkpoint_every=1)
    assert result.checkpoint_s == pytest.approx(1.0)  # four ranks write a quarter each
    waited = result.seconds - simulated(plan, times=replace(times, saves={})).seconds
    if measured:
        assert sum(result.steps_s) > 2.0
    else:
        assert max(result.steps_s) < 0.5
    assert waited > 0.9  # a run ends with its last checkpoint
