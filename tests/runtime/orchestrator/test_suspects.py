"""A sample that kills whoever has it is found, and only such a one is put aside."""

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Run
from flowgraph.runtime.orchestrator.events import Commit, Death, Send, WorkerDied
from flowgraph.runtime.orchestrator.quarantine import Quarantine
from flowgraph.runtime.orchestrator.state import Worker
from flowgraph.runtime.progress import Restarted
from tests.passes.graphs import filtered, laptop, marl, vlm
from tests.runs.running import GRAPHS
from tests.runs.running import plan_of as plan_of_file
from tests.runtime.orchestrator.deadly import Attempts, Deadly, DeadlyWorld, of_samples
from tests.runtime.orchestrator.world import World, first
from tests.runtime.simulate.laws import check_state

PINS = {"host.replicas": 2, "schedule.unit": 2, "schedule.chunk": 4}


@cache
def plan_of(name: str) -> Plan:
    if name == "agents":
        return compile_graph(marl(batch=8, tries=4), laptop(), PINS)
    if name == "filtered":
        graph = filtered(8)
        stages = tuple(s for s in graph.stages if s.op != "evaluate")
        return compile_graph(replace(graph, stages=stages), laptop(), PINS)
    return compile_graph(vlm(batch=8), laptop(), PINS)


def keep(sample: int) -> bool:
    return sample % 3 > 0


def trained(entries: list[tuple[int, str, tuple[int, ...]]]) -> Counter[tuple[int, str, int]]:
    return Counter((step, task, sample) for step, task, samples in entries for sample in samples)


def knew(name: str, exact: bool, aside: tuple[int, ...]) -> World:
    """The run that left the samples out from the start."""
    world = World(plan_of(name), first, exact=exact, keep=keep, checkpoint_every=1)
    world.state.quarantine = Quarantine(world.plan.graph, aside)
    world.run()
    return world


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    exact=st.booleans(),
    name=st.sampled_from(["agents", "digits", "filtered"]),
    bad=st.sets(st.integers(0, 20), min_size=1, max_size=3),
    death=st.sampled_from([Death.CRASHED, Death.KILLED]),
    share=st.sampled_from([0.0, 0.03]),
)
def test_whatever_else_is_killed_the_deadly_samples_are_put_aside_and_the_run_is_one_that_knew(
    seed: int, exact: bool, name: str, bad: set[int], death: Death, share: float
) -> None:
    draw = random.Random(seed)
    plan = plan_of(name)

    def make(commit: Commit | None, aside: tuple[int, ...]) -> DeadlyWorld:
        return DeadlyWorld(
            plan,
            lambda count: draw.randrange(count),
            exact=exact,
            keep=keep,
            kill=lambda _: "host-0" if draw.random() < share else None,
            watch=check_state,
            checkpoint_every=1,
            checkpoint=commit,
            deadly=of_samples(*bad),
            death=death,
            quarantine=5,
            retries=9,  # nobody is killed by chance ten times in a row with the same sample alone
            aside=aside,
        )

    attempts = Attempts(make)
    result = attempts.run()
    assert result is not None, attempts.ended
    assert set(attempts.aside) <= bad
    whole = knew(name, exact, tuple(attempts.aside))
    assert trained(attempts.trained) == trained(whole.trained)
    assert whole.result is not None
    assert result.samples == whole.result.samples
    assert result.updates == whole.result.updates
    assert not {sample for _, _, sample in trained(attempts.trained)} & bad


def world(name: str, deadly: Deadly, *, plan: Plan | None = None, **more: object) -> DeadlyWorld:
    found = DeadlyWorld(
        plan or plan_of(name),
        first,
        keep=keep,
        watch=check_state,
        deadly=deadly,
        **more,  # type: ignore[arg-type]  # each test says what it wants
    )
    while found.result is None and found.aborted is None:
        found.run_some(1)
    return found


def busy_host(world: World) -> Worker:
    """A stage worker that holds work, as soon as there is one."""
    while True:
        world.run_some(1)
        for worker in world.state.workers.values():
            if worker.group.kind == "stage" and worker.items:
                return worker


@pytest.mark.parametrize("name", ["agents", "digits", "filtered"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_a_sample_that_crashes_is_convicted_by_two_deaths_alone_which_cost_no_restart(
    name: str, restarts: int
) -> None:
    found = world(name, of_samples(5), quarantine=1, restarts=restarts)
    assert found.aborted is not None
    assert (found.aborted.sample, found.aborted.training, found.aborted.lost) == (5, True, False)
    assert found.solo.count((5,)) == 2
    assert found.state.restarts == 1, "the first death alone was held against the budget"
    assert "each of 2 times that it was handed out alone" in found.aborted.cause
    assert (found.aborted.traceback, found.aborted.at) == ("trace", "user.py:7")


def test_more_retries_are_more_deaths_before_it_is_put_aside() -> None:
    found = world("digits", of_samples(5), quarantine=1, retries=4)
    assert found.solo.count((5,)) == 5


def test_with_no_retries_one_death_alone_is_not_enough() -> None:
    found = world("digits", of_samples(5), quarantine=1, retries=0)
    assert found.solo.count((5,)) == 2


@pytest.mark.parametrize("aside", [(), (1,)])
def test_when_nothing_may_be_put_aside_it_is_tried_while_restarts_are_left_and_named_alone(
    aside: tuple[int, ...],
) -> None:
    found = world("digits", of_samples(5), restarts=3, aside=aside, quarantine=len(aside))
    assert found.aborted is not None
    assert found.aborted.lost
    assert found.aborted.sample == 5
    assert "is gone while it held sample 5 and nothing else" in found.aborted.what
    told = [p.restart for p in found.progress if isinstance(p, Restarted)]
    assert told == [1, 2, 3]


def test_in_an_evaluation_it_ends_the_run_named_however_many_may_be_put_aside() -> None:
    plan = plan_of_file(GRAPHS / "poisoned_games.py", {}, {"host.replicas": 2})
    found = world("", of_samples(1, variant=1), plan=plan, quarantine=100, restarts=3)
    assert found.aborted is not None
    assert found.aborted.lost
    assert not found.aborted.training
    assert "while it held sample 1 and nothing else" in found.aborted.what


def test_a_kill_from_outside_makes_no_suspect_the_first_time_and_what_it_held_goes_to_anybody() -> (
    None
):
    found = DeadlyWorld(plan_of("filtered"), first, keep=keep, watch=check_state, quarantine=9)
    host = busy_host(found)
    found.lose(host.name)
    assert not found.state.suspects.waiting
    found.run()
    assert found.solo == []


def test_who_is_killed_once_with_a_suspect_alone_convicts_nobody() -> None:
    plan = plan_of("filtered")  # no evaluation, which convicts nobody
    found = DeadlyWorld(plan, first, keep=keep, watch=check_state, quarantine=9)
    host = busy_host(found)
    found.doomed.append(host.name)  # it crashes, whatever the reason
    found.lose(host.name)
    while not (on_trial := [w for w in found.state.workers.values() if w.trial]):
        found.run_some(1)
    found.lose(on_trial[0].name)
    result = found.run()
    assert len(found.solo) == 1
    assert result.quarantined == 0
    whole = World(plan, first, keep=keep).run()
    assert result.samples == whole.samples


def test_samples_of_a_unit_that_are_hit_once_each_by_chance_convict_none() -> None:
    found = DeadlyWorld(
        plan_of("filtered"), first, exact=True, keep=keep, watch=check_state, quarantine=9
    )
    host = busy_host(found)
    found.doomed.append(host.name)
    found.lose(host.name)
    hit: set[int] = set()
    while len(hit) < 4:  # a whole unit, whichever others are tried beside it
        found.run_some(1)
        for worker in list(found.state.workers.values()):
            trial = worker.trial
            if trial is not None and trial.alone is not None and trial.alone not in hit:
                hit.add(trial.alone)
                found.lose(worker.name)
    assert found.run().quarantined == 0


def test_a_process_that_another_failed_accuses_nobody() -> None:
    found = DeadlyWorld(plan_of("digits"), first, keep=keep, watch=check_state, restarts=100)
    found.death = Death.ORPHANED
    for _ in range(5):
        host = busy_host(found)
        found.doomed.append(host.name)
        found.lose(host.name)
        assert not found.state.suspects.waiting
        assert not found.state.suspects.lost
    found.run()


def test_a_unit_of_many_samples_is_tried_one_by_one_and_then_computed_whole() -> None:
    found = DeadlyWorld(plan_of("digits"), first, exact=True, keep=keep, watch=check_state)
    host = busy_host(found)
    held = [found.state.items[number] for number in sorted(host.items)]
    units = [found.state.steps[0].units[item.units[0]] for item in held]
    found.doomed.append(host.name)
    del found.log[:]
    found.lose(host.name)
    result = found.run()
    runs = [m for _, m in found.log if isinstance(m, Run) and m.task == held[0].task]
    tried = [m.samples[0] for m in runs if not m.outputs]
    assert sorted(tried) == sorted((sample,) for unit in units for sample in unit)
    assert {m.samples[0] for m in runs if m.outputs} >= set(units)
    whole = World(plan_of("digits"), first, exact=True, keep=keep).run()
    assert result.samples == whole.samples
    assert not found.live, "what was tried kept a block"


def test_a_unit_that_is_only_deadly_as_a_whole_ends_the_run_naming_its_samples() -> None:
    def deadly(run: Run) -> bool:
        return any(len(unit) > 1 and 5 in unit for unit in run.samples)

    found = world("digits", deadly, exact=True, quarantine=9, restarts=3)
    assert found.aborted is not None
    assert found.aborted.lost
    assert found.aborted.sample is None
    assert "while it held samples 4-7" in found.aborted.what


def test_outputs_of_what_was_only_tried_are_refused() -> None:
    found = DeadlyWorld(plan_of("digits"), first, exact=True, keep=keep, watch=check_state)
    host = busy_host(found)
    found.doomed.append(host.name)
    found.lose(host.name)
    while not (on_trial := [w for w in found.state.workers.values() if w.trial]):
        found.run_some(1)
    (number,) = on_trial[0].items
    name = on_trial[0].name
    (answer,) = [m for w, m in found.waiting if w == name and getattr(m, "item", -1) == number]
    stream = found.plan.tasks[0].outputs[0]
    wrong = replace(answer, outputs={stream: ()})  # type: ignore[arg-type]  # it is a Done
    found.feed(wrong)
    assert found.refused["misfit"] == 1
    found.run()


def test_a_suspect_is_handed_out_before_other_work_when_the_replacement_is_ready() -> None:
    found = DeadlyWorld(plan_of("digits"), first, keep=keep, watch=check_state)
    host = busy_host(found)
    found.doomed.append(host.name)
    found.lose(host.name)
    waiting = {name for name, _ in found.waiting}
    assert host.name in waiting
    del found.log[:]
    while not host.items:
        found.run_some(1)
    (runs,) = [[m for w, m in found.log if w == host.name and isinstance(m, Run)]]
    assert len(runs) == 1
    assert host.trial is not None
    assert host.room == 0
    event = WorkerDied(worker=host.name, how="is gone", log="", incarnation=host.incarnation)
    assert not [a for a in found.feed(event) if isinstance(a, Send) and a.worker == host.name]
    found.run()
