"""Stage workers and engines are lost at any time, in any order of arrival, and nothing is lost."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Done, Generate, Generated, Load, Run, Updated
from flowgraph.runtime.orchestrator.events import Send, Start, WorkerDied
from flowgraph.runtime.orchestrator.state import Phase, Worker, WorkerPhase
from flowgraph.runtime.progress import Restarted
from tests.passes.graphs import filtered, laptop, marl, vlm
from tests.runtime.orchestrator.world import Kill, World, first, samples_of
from tests.runtime.simulate.laws import check_state

PINS = {"host.replicas": 2}


@cache
def plan_of(name: str) -> Plan:
    if name == "agents":
        return compile_graph(marl(batch=8, tries=4), laptop(), {**PINS, "solver.engines": 2})
    if name == "filtered":
        graph = filtered(8)
        stages = tuple(s for s in graph.stages if s.op != "evaluate")
        return compile_graph(replace(graph, stages=stages), laptop(), PINS)
    return compile_graph(vlm(batch=8), laptop(), PINS)


@cache
def undisturbed(name: str, exact: bool) -> World:
    world = World(plan_of(name), first, exact=exact, keep=lambda sample: sample % 3 > 0)
    world.run()
    return world


def replaceable(plan: Plan) -> list[str]:
    return [
        f"{group.name}-{index}"
        for group in plan.groups
        if group.kind != "gang"
        for index in range(group.replicas)
    ]


def killer(draw: random.Random, plan: Plan, share: float) -> Kill:
    names = replaceable(plan)
    return lambda _: draw.choice(names) if draw.random() < share else None


def trained(world: World) -> Counter[tuple[int, str, int]]:
    return Counter(
        (step, task, sample) for step, task, samples in world.trained for sample in samples
    )


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    exact=st.booleans(),
    name=st.sampled_from(["agents", "digits", "filtered"]),
    share=st.sampled_from([0.02, 0.1, 0.2]),
)
def test_whoever_is_lost_every_sample_is_trained_once_and_every_block_ends_once(
    seed: int, exact: bool, name: str, share: float
) -> None:
    draw = random.Random(seed)
    plan = plan_of(name)
    world = World(
        plan,
        lambda count: draw.randrange(count),
        exact=exact,
        kill=killer(draw, plan, share),
        restarts=10_000,
        keep=lambda sample: sample % 3 > 0,
        watch=check_state,
    )
    result = world.run()
    whole = undisturbed(name, exact)
    expected = whole.result
    assert expected is not None
    assert trained(world) == trained(whole)
    assert result.samples == expected.samples
    assert result.updates == expected.updates
    if name != "filtered":  # a filter's blocks of samples beyond the last step end with the run
        assert not world.live
        assert not world.state.references
        assert not world.state.retired
    calls = world.state.call_record
    assert calls.admitted == calls.consumed + calls.dropped


def started(plan: Plan, events: int) -> World:
    """The run after so many events in the order in which they were made."""
    world = World(plan, first, steps=2)
    world.run_some(events)
    return world


def busy_engine(world: World) -> Worker:
    """The first engine that has calls, once there is one."""
    engines = [w for w in world.state.workers.values() if w.group.kind == "engine"]
    while not any(engine.inflight for engine in engines):
        world.run_some(1)
    return next(engine for engine in engines if engine.inflight)


def sent(world: World, event: WorkerDied | Updated | Done | Generated) -> list[Send]:
    return [action for action in world.feed(event) if isinstance(action, Send)]


def test_an_engines_open_calls_go_to_the_other_engine() -> None:
    world = World(plan_of("agents"), first)
    engine = busy_engine(world)
    open_ = {key for key, known in world.state.calls.items() if known.engine == engine.name}
    actions = sent(world, WorkerDied(worker=engine.name, how="is gone", log=""))
    again = {
        (action.message.origin, call[0])
        for action in actions
        if isinstance(action.message, Generate)
        for call in action.message.calls
    }
    assert again == open_
    assert engine.name not in {action.worker for action in actions}
    world.run()


def test_calls_wait_for_the_replacement_when_an_agent_has_no_other_engine() -> None:
    plan = compile_graph(marl(batch=8, tries=4), laptop(), PINS)
    world = World(plan, first)
    engine = busy_engine(world)
    actions = sent(world, WorkerDied(worker=engine.name, how="is gone", log=""))
    assert not [a for a in actions if isinstance(a.message, Generate)]
    assert world.state.queued[engine.group.name]
    world.run()
    assert not world.state.calls


def test_a_replaced_engine_loads_the_present_weights_before_it_gets_calls() -> None:
    plan = compile_graph(marl(batch=8, tries=4), laptop(), PINS)
    world = World(plan, first)
    while world.state.version < 1:
        world.run_some(1)
    world.feed(WorkerDied(worker="solver.engine-0", how="is gone", log=""))
    log = world.log
    del log[:]
    world.run()
    to_it = [m for worker, m in log if worker == "solver.engine-0"]
    assert isinstance(to_it[0], Load)
    assert to_it[0].version == 1
    assert any(isinstance(message, Generate) for message in to_it)


def test_a_word_of_a_lost_process_is_refused_and_counted_and_its_item_is_done_by_another() -> None:
    world = started(plan_of("digits"), 12)
    host = next(w for w in world.state.workers.values() if w.group.kind == "stage" and w.items)
    held = [world.state.items[number] for number in host.items]
    actions = sent(world, WorkerDied(worker=host.name, how="is gone", log=""))
    again = [a.message for a in actions if isinstance(a.message, Run)]
    before = world.refused["late message"]
    world.run()
    assert world.refused["late message"] > before
    assert {(run.task, run.units) for run in again} <= {(item.task, item.units) for item in held}


def test_a_death_that_is_told_twice_is_refused() -> None:
    world = started(plan_of("digits"), 12)
    death = WorkerDied(worker="host-0", how="is gone", log="")
    assert any(isinstance(action, Start) for action in world.feed(death))
    assert not any(isinstance(action, Start) for action in world.feed(death))
    assert world.refused["late message"] == 1
    assert world.state.workers["host-0"].incarnation == 1
    world.run()


def test_each_replacement_is_told_with_what_the_worker_held() -> None:
    world = started(plan_of("digits"), 12)
    world.lose("host-0")
    (told,) = [p for p in world.progress if isinstance(p, Restarted)]
    assert (told.restart, told.worker) == (1, "host-0")
    assert "worker host-0 is gone while it held samples" in told.cause


def test_without_a_restart_left_the_run_ends_naming_the_worker() -> None:
    world = World(plan_of("digits"), first, restarts=0)
    world.run_some(12)
    world.lose("host-0")
    assert world.aborted is not None
    assert "worker host-0 is gone while it held samples" in world.aborted.what


@pytest.mark.parametrize("worker", ["lm.gang-0", "vit.gang-0"])
def test_a_lost_rank_ends_the_attempt_for_a_return_to_the_checkpoint(worker: str) -> None:
    world = started(plan_of("digits"), 12)
    world.lose(worker)
    assert world.aborted is not None
    assert world.aborted.lost


def test_who_is_lost_after_the_last_step_is_not_waited_for() -> None:
    world = World(plan_of("agents"), first)
    while world.state.workers["host-0"].phase is not WorkerPhase.STOPPING:
        world.run_some(1)
    for worker in ("host-0", "solver.engine-0"):
        world.waiting = [(name, message) for name, message in world.waiting if name != worker]
        world.lose(worker)
    world.run()
    assert world.result is not None
    assert samples_of(world.result)


def test_the_first_start_may_fail_too() -> None:
    kills = iter(["host-0", "solver.engine-0", None, "host-0"])
    world = World(plan_of("agents"), first, kill=lambda _: next(kills, None))
    world.run()
    assert sum(isinstance(p, Restarted) for p in world.progress) == 3


def test_an_engine_lost_while_it_loads_is_not_waited_for_by_the_others() -> None:
    world = World(plan_of("agents"), first)
    steps = world.state.steps
    while not (steps and steps[0].phase is Phase.SYNCING and len(steps[0].waiting_for) == 1):
        world.run_some(1)
    (engine,) = steps[0].waiting_for
    version = world.state.version
    world.lose(engine)
    assert world.state.version == version + 1
    world.run()


def test_calls_of_a_lost_caller_that_wait_for_an_engine_are_dropped_and_never_made() -> None:
    plan = compile_graph(marl(batch=8, tries=4), laptop(), PINS)
    world = World(plan, first)
    engine = busy_engine(world)
    world.lose(engine.name)
    waiting = world.state.queued[engine.group.name]
    token = waiting[0][0]
    calls = sum(len(entry[2]) for entry in waiting if entry[0] == token)
    dropped = world.state.call_record.dropped
    world.lose(world.state.living[token])
    assert token not in {entry[0] for entry in world.state.queued[engine.group.name]}
    assert world.state.call_record.dropped == dropped + calls
    del world.log[:]
    world.run()
    made = [message for _, message in world.log if isinstance(message, Generate)]
    assert made
    assert token not in {message.origin for message in made}


def test_positions_that_two_lost_workers_had_are_read_again_from_the_first_on() -> None:
    plan = plan_of("filtered")
    world = World(plan, first)
    world.run_some(len(world.state.workers))
    had = {
        host: [
            world.state.items[number].units[0] for number in sorted(world.state.workers[host].items)
        ]
        for host in ("host-0", "host-1")
    }
    assert had["host-0"]
    assert max(had["host-0"]) < min(had["host-1"])
    for host in ("host-1", "host-0"):  # the later positions are given back first
        world.lose(host)
    del world.log[:]
    while not world.log:
        world.run_some(1)
    (_, run), *_ = world.log
    assert isinstance(run, Run)
    assert run.units[0] == min(had["host-0"])  # what all others wait for
    world.run()
