"""What a simulation predicts, and that it is a function of its arguments."""

import json
from dataclasses import replace
from functools import cache

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.policy.step_time import TaskTimes, estimated
from flowgraph.runtime.simulate import Fault, Faults, SimResult, simulate
from flowgraph.runtime.simulate.ledger import digest_of, reference_entries
from flowgraph.runtime.simulate.result import exposed_training
from flowgraph.runtime.simulate.timeline import Span
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm


@cache
def agents() -> Plan:
    return compile_graph(marl(batch=4, tries=4), laptop())


@cache
def digits() -> Plan:
    return compile_graph(vlm(batch=8), laptop())


def p50(result: SimResult) -> float:
    assert result.outcome == "finished"
    return result.step_s["p50"]


def test_the_same_arguments_give_the_same_result_and_another_seed_another_one() -> None:
    first = simulate(agents(), steps=3, seed=1)
    again = simulate(agents(), steps=3, seed=1)
    assert first.plain() == again.plain()
    assert first.timeline.spans == again.timeline.spans
    assert simulate(agents(), steps=3, seed=2).steps_s != first.steps_s


def test_the_result_is_one_json_object_with_all_figures() -> None:
    plain = json.loads(json.dumps(simulate(digits(), steps=3).plain()))
    assert {"step_s", "utilisation", "exposed_training_s", "stalls", "queue", "conservation"} <= (
        plain.keys()
    )
    assert plain["step_s"].keys() == {"p10", "p50", "p90"}
    assert plain["utilisation"]["modules"].keys() == {"host", "vit", "lm"}
    assert plain["utilisation"]["devices"].keys() == {"core"}


def test_a_step_takes_no_less_than_the_work_in_it() -> None:
    for plan in (agents(), digits()):
        result = simulate(plan, steps=4)
        assert result.step_s["p10"] >= result.bound_s * 0.99
        assert all(0.0 <= share <= 1.0 + 1e-9 for share in result.utilisation["devices"].values())


def test_steps_and_evaluations_fill_the_run() -> None:
    result = simulate(digits(), steps=4)
    assert result.seconds == pytest.approx(sum(result.steps_s) + result.evaluation_s)
    assert result.evaluation_s > 0.0


def test_fewer_cores_make_a_step_longer_but_never_by_more_than_they_are_fewer() -> None:
    plan = digits()
    times = {}
    for cores in (1, 2, 4):
        node = replace(plan.cluster.nodes[0], cores=cores)
        there = replace(plan, cluster=replace(plan.cluster, nodes=(node,)))
        times[cores] = p50(simulate(there, steps=4))
    assert times[4] <= times[2] <= times[1] <= 2.0 * times[2] * 1.001


def test_a_slow_worker_and_a_busy_machine_make_a_step_longer() -> None:
    slow = Faults((Fault(kind="slow", worker="lm.gang-0", factor=3.0),))
    plain = p50(simulate(digits(), steps=4))
    assert p50(simulate(digits(), steps=4, faults=slow)) > 1.5 * plain
    assert p50(simulate(digits(), steps=4, background=4.0)) > 1.5 * plain


def test_a_second_rank_of_the_slowest_part_makes_a_step_shorter() -> None:
    seconds = []
    for ranks in (1, 2):
        plan = compile_graph(vlm(batch=32), gpus(), {"vit.ranks": 1, "lm.ranks": ranks})
        times = estimated(plan)
        slow = replace(times, tasks={**times.tasks, "train-lm": TaskTimes(weight_s=1e-3)})
        seconds.append(p50(simulate(plan, steps=4, times=slow)))
    assert 0.5 * seconds[0] <= seconds[1] < 0.6 * seconds[0]


def test_training_that_overlaps_rollout_is_not_exposed() -> None:
    def span(kind: str, start: float, end: float) -> Span:
        return Span(worker="w", kind=kind, start=start, end=end, work=end - start)

    rollout = [span("rollout", 0.0, 3.0), span("host", 2.0, 4.0)]
    assert exposed_training([*rollout, span("train", 1.0, 6.0), span("update", 6.0, 7.0)]) == 3.0
    assert exposed_training([*rollout, span("evaluate", 4.0, 9.0)]) == 0.0
    result = simulate(agents(), steps=4)
    assert 0.0 < result.exposed_training_s < result.step_s["p50"]


def test_waits_are_booked_to_their_cause() -> None:
    slow = Faults((Fault(kind="slow", worker="vit.gang-0", factor=10.0),))
    stalls = simulate(digits(), steps=4, faults=slow).stalls
    assert stalls["rows"]["lm.gang"] > stalls["rows"].get("vit.gang", 0.0)
    assert stalls["gradients"]["vit.gang"] > 0.0
    games = simulate(agents(), steps=4).stalls
    assert games["answers of engines"].keys() == {"host"}
    assert games["calls"].keys() == {"solver.engine", "verifier.engine"}


def test_every_wait_of_a_step_is_booked_somewhere() -> None:
    result = simulate(agents(), steps=4)
    for group in ("solver.engine", "verifier.gang", "host"):
        waited = sum(groups.get(group, 0.0) for groups in result.stalls.values())
        worked = (
            sum(s.work for s in result.timeline.spans if s.worker == f"{group}-0" and s.kind) / 4
        )
        assert waited + worked == pytest.approx(sum(result.steps_s) / 4, rel=0.02)


def test_a_full_pool_makes_its_writer_wait_and_holds_no_more_than_its_budget() -> None:
    plan = digits()
    roomy = simulate(plan, steps=4)
    budget = roomy.queue["pools"]["host"] * 2 // 3
    tight = simulate(replace(plan, pool_bytes=budget), steps=4)
    assert tight.outcome == "finished"
    assert tight.queue["pools"]["host"] <= budget
    assert tight.stalls["room in the pool"]["host"] > 0.0
    assert tight.trained == roomy.trained


def test_a_run_that_stands_still_says_who_waits_for_what() -> None:
    channel = next(c for c in digits().channels if c.stream == "samples")
    a_record = channel.capacity_bytes // channel.capacity_records
    result = simulate(replace(digits(), pool_bytes=2 * a_record), steps=2)  # less than a step
    assert result.outcome == "failed"
    assert "host-0 waits for room for 10,922 bytes of stream 'images'" in result.cause
    assert result.cause.endswith("nothing that is in its pool can be consumed")


def test_evaluations_behind_the_end_of_a_source_are_not_begun_before_it_is_known() -> None:
    graph = vlm(batch=4)
    source, *others = graph.stages
    ending = replace(graph, stages=(replace(source, attributes={"at_end": "drop"}), *others))
    for size in range(1, 12):
        result = simulate(compile_graph(ending, laptop()), steps=4, source_size=size)
        assert (result.outcome, result.steps) == ("finished", size // 4)
        assert result.conservation["blocks"]["in_flight"] == 0


def test_filters_run_ahead_of_a_late_worker_by_a_bounded_number_of_samples() -> None:
    graph = filtered(batch=4)
    graph = replace(graph, stages=tuple(s for s in graph.stages if s.op != "evaluate"))
    plan = compile_graph(graph, laptop(), {"host.replicas": 3})
    late = Faults((Fault(kind="slow", worker="host-1", factor=1000.0),))
    result = simulate(plan, steps=3, faults=late)
    assert result.outcome == "finished"
    steps = 1 + plan.schedule.ahead
    assert result.queue["streams"]["kept"]["records"] <= 4 * steps * plan.schedule.batch


def test_a_lost_worker_costs_time_and_no_sample() -> None:
    crash = Faults((Fault(kind="crash", worker="solver.gang-0", start_s=1.03),))
    plain = simulate(agents(), steps=3, exact=True, checkpoint_every=1)
    result = simulate(agents(), steps=3, exact=True, checkpoint_every=1, faults=crash, start_s=1.0)
    assert (result.outcome, result.restarts, result.steps) == ("finished", 1, 3)
    assert result.seconds > plain.seconds
    assert result.trained == plain.trained
    assert result.trained == digest_of(reference_entries(agents(), steps=3, exact=True), exact=True)


@pytest.mark.parametrize("worker", ["host-0", "solver.engine-0"])
def test_a_stage_worker_or_engine_is_replaced_alone_and_no_step_is_taken_again(
    worker: str,
) -> None:
    crash = Faults((Fault(kind="crash", worker=worker, start_s=1.03),))
    plain = simulate(agents(), steps=3, exact=True, checkpoint_every=1, start_s=1.0)
    result = simulate(agents(), steps=3, exact=True, checkpoint_every=1, faults=crash, start_s=1.0)
    assert (result.outcome, result.restarts, result.steps) == ("finished", 1, 3)
    assert not [mark.what for mark in result.timeline.marks if mark.what.startswith("restart from")]
    assert plain.seconds + 0.5 < result.seconds < plain.seconds + 1.5, "it costs one start"
    assert result.trained == plain.trained
    calls = result.conservation["calls"]
    assert calls["issued"] == calls["answered"] + calls["dropped"]
    assert result.conservation["blocks"]["in_flight"] == 0


def test_words_that_come_twice_change_nothing() -> None:
    again = Faults((Fault(kind="duplicate", seconds=0.01),), seed=3)
    plain, result = (
        simulate(agents(), steps=3, exact=True, faults=faults) for faults in (None, again)
    )
    assert result.trained == plain.trained
    assert result.conservation["samples"] == plain.conservation["samples"]
    assert result.events > plain.events


def test_workers_that_die_again_and_again_end_the_run_with_the_cause() -> None:
    deaths = tuple(
        Fault(kind="crash", worker="lm.gang-0", start_s=0.01 * (1 + n)) for n in range(9)
    )
    result = simulate(digits(), steps=3, faults=Faults(deaths))
    assert result.outcome == "failed"
    assert "lm.gang-0 was killed by signal 9" in result.cause
    assert result.restarts == 3


def test_twice_the_times_are_twice_the_step_where_all_is_compute() -> None:
    times = replace(estimated(digits()), event_s=0.0, wire_s=0.0)
    tasks = {
        name: replace(
            task,
            item_s=2 * task.item_s,
            weight_s=2 * task.weight_s,
            backward_item_s=2 * task.backward_item_s,
            backward_weight_s=2 * task.backward_weight_s,
        )
        for name, task in times.tasks.items()
    }
    hosts = {
        name: replace(host, item_s=2 * host.item_s, sample_s=2 * host.sample_s)
        for name, host in times.hosts.items()
    }
    updates = {name: 2 * seconds for name, seconds in times.updates.items()}
    saves = {name: 2 * seconds for name, seconds in times.saves.items()}
    double = replace(times, tasks=tasks, hosts=hosts, updates=updates, saves=saves)
    once, twice = (p50(simulate(digits(), steps=4, times=t)) for t in (times, double))
    assert twice == pytest.approx(2 * once, rel=1e-6)


def test_a_large_cluster_is_simulated_in_seconds() -> None:
    plan = compile_graph(marl(batch=64, tries=8), gpus(nodes=4))
    result = simulate(plan, steps=2)
    assert result.outcome == "finished"
    assert result.utilisation["devices"].keys() == {"gpu", "host"}
