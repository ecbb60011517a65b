"""A channel ends when no more can come, and closes with nothing in it; both have consequences."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import Run
from flowgraph.runtime.orchestrator.channels import check_closed
from flowgraph.runtime.orchestrator.events import Action, Event, Send
from flowgraph.runtime.orchestrator.records import Channel, ChannelPhase
from flowgraph.runtime.orchestrator.state import State, Step
from tests.passes.graphs import laptop, vlm
from tests.runtime.orchestrator.world import World, first
from tests.runtime.simulate.laws import check_state


def in_parts(updates: int) -> Plan:
    """Micro-batches that hold more than a part, so that only their flush hands them out."""
    graph = vlm(batch=8)
    trained = replace(graph, stages=tuple(s for s in graph.stages if s.op != "evaluate"))
    plan = compile_graph(trained, laptop(), {"host.replicas": 2})
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "micro_batch": 10**6})
        if stage.op == "train"
        else stage
        for stage in plan.graph.stages
    )
    schedule = replace(plan.schedule, updates=updates, unit=1)
    return replace(plan, graph=replace(plan.graph, stages=stages), schedule=schedule)


def phases(step: Step, part: int) -> set[ChannelPhase]:
    return {parts[part].phase for parts in step.channels.values()}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), updates=st.integers(1, 3))
def test_a_partial_micro_batch_is_handed_out_once_its_channels_have_ended(
    seed: int, updates: int
) -> None:
    flushed = Counter[bool]()

    def watch(state: State, event: Event, actions: list[Action]) -> None:
        check_state(state, event, actions)
        for action in actions:
            if not isinstance(action, Send) or not isinstance(action.message, Run):
                continue
            run, (step, *_) = action.message, state.steps
            if run.task != "train-lm" or run.variant:
                continue
            reads = step.tasks[run.task].channels[run.part].reads
            ended = all(channel.phase is not ChannelPhase.OPEN for channel in reads)
            assert ended, "a micro-batch that is not full, while more could come"
            flushed[len(run.units) == len(step.parts[run.part])] += 1

    draw = random.Random(seed)
    World(in_parts(updates), lambda count: draw.randrange(count), watch=watch).run()
    assert flushed == Counter({True: 3 * updates})


def test_the_channels_of_a_part_are_closed_when_its_update_begins_and_later_ones_are_not() -> None:
    seen: list[tuple[set[ChannelPhase], bool]] = []

    def watch(state: State, _: Event, __: list[Action]) -> None:
        step = state.steps[0] if state.steps else None
        if step is not None and step.variant == 0 and step.waiting_for and step.part == 0:
            later = {channel.phase for channel in step.tasks["train-lm"].channels[1].reads}
            seen.append((phases(step, 0), ChannelPhase.CLOSED in later))

    World(in_parts(2), first, watch=watch).run()
    assert seen
    assert all(closed == {ChannelPhase.CLOSED} for closed, _ in seen)
    assert not any(later for _, later in seen)


def midway(variant: int) -> World:
    """A run whose first step is of the variant, has begun, and is not over."""
    world = World(compile_graph(vlm(batch=8), laptop()), first)
    for _ in range(1000):
        steps = world.state.steps
        if steps and steps[0].variant == variant and steps[0].channels:
            return world
        world.run_some(1)
    raise AssertionError("the run has no such step")


@pytest.mark.parametrize("variant", [0, 1], ids=["training", "evaluation"])
@pytest.mark.parametrize("lost", [1, -1])
def test_a_sample_that_is_lost_or_made_up_in_a_channel_is_found_when_it_closes(
    variant: int, lost: int
) -> None:
    world = midway(variant)
    step = world.state.steps[0]
    (stream, consumer), (channel,) = next(iter(step.channels.items()))
    channel.admitted += lost
    with pytest.raises(InternalError, match=f"{stream} → {consumer} is closed with {lost} samples"):
        world.run()
    assert channel.phase is ChannelPhase.ENDED


def test_a_channel_that_is_closed_before_it_has_ended_is_our_bug() -> None:
    world = midway(0)
    step = world.state.steps[0]
    channel = next(read for progress in step.tasks.values() for read in progress.channels[0].reads)
    channel.phase = ChannelPhase.CLOSED
    with pytest.raises(InternalError, match="cannot go from CLOSED to ENDED"):
        world.run()


@pytest.mark.parametrize("variant", [0, 1], ids=["training", "evaluation"])
def test_the_end_of_a_step_looks_at_all_of_its_channels(variant: int) -> None:
    world = midway(variant)
    step = world.state.steps[0]
    while not any(parts[0].phase is ChannelPhase.CLOSED for parts in step.channels.values()):
        world.run_some(1)
    for (channel,) in step.channels.values():
        if channel.phase is ChannelPhase.CLOSED:
            channel.admitted += 1
            break
    with pytest.raises(InternalError, match="at the end of step 0"):
        world.run()


def test_a_part_without_samples_is_closed_from_the_start() -> None:
    plan = in_parts(3)
    source, *others = plan.graph.stages
    short = replace(source, attributes={**source.attributes, "at_end": "short"})
    plan = replace(plan, graph=replace(plan.graph, stages=(short, *others)))
    world = World(plan, first, source_size=10, watch=check_state)  # 8 samples, then 2
    result = world.run()
    assert result.steps == 2
    assert {record["consumed"] for record in result.samples.values()} == {10}


@pytest.mark.parametrize("phase", [ChannelPhase.OPEN, ChannelPhase.ENDED])
def test_a_step_is_not_over_while_a_channel_is_not_closed(phase: ChannelPhase) -> None:
    step = Step(order=0, variant=0, step=4, parts=(range(1),))
    step.channels["rows", "train"] = [Channel(1, 1, name="rows → train", phase=phase)]
    with pytest.raises(InternalError, match=f"rows → train is {phase.value} at the end of step 4"):
        check_closed(step)


def test_an_evaluation_loses_nothing_and_adds_nothing_to_what_the_run_trained_on() -> None:
    counted: list[int] = []

    def watch(state: State, _: Event, __: list[Action]) -> None:
        counted.extend(
            record.admitted
            for step in state.steps
            if step.variant
            for record in step.records.values()
        )

    world = World(compile_graph(vlm(batch=8), laptop()), first, watch=watch)
    result = world.run()
    assert max(counted) > 0
    assert {record["admitted"] for record in result.samples.values()} == {3 * 8}
