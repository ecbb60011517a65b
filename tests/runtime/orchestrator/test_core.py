"""The orchestrator's laws, in every order of arrival that hypothesis thinks of."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Run
from flowgraph.runtime.progress import StepFinished
from tests.passes.graphs import laptop, marl, vlm
from tests.runtime.orchestrator.world import Choose, World, first, last, samples_of


def agents_plan(**pins: int) -> Plan:
    return compile_graph(
        marl(batch=8, tries=4), laptop(), {k.replace("_", "."): v for k, v in pins.items()}
    )


def digits_plan(**pins: int) -> Plan:
    return compile_graph(vlm(batch=8), laptop(), {k.replace("_", "."): v for k, v in pins.items()})


def ending(at_end: str) -> Graph:
    """Four samples a step, from a source with an end."""
    graph = marl(batch=4, tries=2)
    source, *others = graph.stages
    return replace(graph, stages=(replace(source, attributes={"at_end": at_end}), *others))


def shuffled(seed: int) -> Choose:
    source = random.Random(seed)
    return lambda count: source.randrange(count)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), exact=st.booleans(), agents=st.booleans())
def test_every_sample_of_a_step_is_trained_once_by_each_module_in_any_order_of_arrival(
    seed: int, exact: bool, agents: bool
) -> None:
    plan = agents_plan() if agents else digits_plan()
    world = World(plan, shuffled(seed), exact=exact)
    world.run()
    trained: Counter[tuple[int, str, int]] = Counter()
    for step, task, samples in world.trained:
        trained.update((step, task, sample) for sample in samples)
    tasks = [task.name for task in plan.tasks if task.kind == "train"]
    assert trained == Counter(
        (step, task, step * 8 + i) for step in range(3) for task in tasks for i in range(8)
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), exact=st.booleans(), agents=st.booleans())
def test_every_block_is_freed_once_and_never_while_somebody_reads_it(
    seed: int, exact: bool, agents: bool
) -> None:
    world = World(agents_plan() if agents else digits_plan(), shuffled(seed), exact=exact)
    world.run()
    assert world.freed
    assert not world.live
    assert not world.state.references


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_versioned_work_runs_only_at_its_steps_own_version(seed: int) -> None:
    for plan in (agents_plan(), digits_plan()):
        world = World(plan, shuffled(seed))
        world.run()
        versioned = {task.name for task in plan.tasks if task.versioned}
        seen = [ran for ran in world.ran_at if ran[0] in versioned]
        assert seen
        assert all(version == step for _, _, step, version in seen)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), replicas=st.integers(1, 3))
def test_with_more_workers_of_each_kind_the_same_samples_are_trained(
    seed: int, replicas: int
) -> None:
    pins = {"solver.engines": replicas, "solver.ranks": replicas, "host.replicas": replicas}
    plan = compile_graph(marl(batch=8, tries=4), laptop(), pins)
    world = World(plan, shuffled(seed), exact=True)
    result = world.run()
    assert result.updates == {"solver": 3, "verifier": 3}
    assert sum(len(samples) for _, _, samples in world.trained) == 2 * 3 * 8


def test_the_divisor_of_an_update_is_the_whole_steps_count() -> None:
    world = World(digits_plan(), last)
    world.run()
    assert {divisor for _, divisor in world.divisors} == {8.0}


def test_admitted_is_consumed_plus_dropped_plus_in_flight_at_the_end() -> None:
    for plan in (agents_plan(), digits_plan()):
        records = samples_of(World(plan, first).run())
        assert records
        for record in records:
            assert record["admitted"] == record["consumed"] + record["dropped"] == 3 * 8


def test_a_source_that_ends_drops_the_incomplete_step_and_the_run_ends() -> None:
    plan = compile_graph(ending("drop"), laptop())
    world = World(plan, first, steps=5, source_size=10)
    result = world.run()
    assert result.steps == 2
    assert {s for _, _, samples in world.trained for s in samples} == set(range(8))


def test_a_source_that_ends_trains_a_short_last_step_when_asked() -> None:
    plan = compile_graph(ending("short"), laptop())
    world = World(plan, first, steps=5, source_size=10)
    result = world.run()
    assert result.steps == 3
    assert {s for _, _, samples in world.trained for s in samples} == set(range(10))


def test_each_step_is_told_once_in_order() -> None:
    world = World(agents_plan(), shuffled(1))
    world.run()
    assert [p.step for p in world.progress if isinstance(p, StepFinished)] == [0, 1, 2]


def test_every_rank_of_a_gang_gets_its_share_of_a_step_that_one_micro_batch_could_hold() -> None:
    plan = compile_graph(vlm(batch=8), laptop(), {"lm.ranks": 2})
    world = World(plan, first)
    world.run()
    items = [len(samples) for step, task, samples in world.trained if task == "train-lm"]
    ranks = {worker for worker, m in world.log if isinstance(m, Run) and m.task == "train-lm"}
    assert sum(items) == 3 * 8
    assert ranks == {"lm.gang-0", "lm.gang-1"}


def test_an_update_names_who_holds_each_gradient_where_the_order_of_addition_counts() -> None:
    plan = compile_graph(vlm(batch=8), laptop(), {"lm.ranks": 2})
    chunks = -(-8 // plan.schedule.chunk)
    for exact, units in ((True, list(range(chunks))), (False, [])):
        world = World(plan, first, exact=exact)
        world.run()
        assert [[unit for unit, _ in update] for update in world.owners if update or not exact]
        assert all([unit for unit, _ in update] == units for update in world.owners)
