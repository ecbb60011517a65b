"""wire: tasks, the channels between them, their budgets, and the schedule."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Stream
from flowgraph.ir.index import index
from flowgraph.ir.plan import Channel, Schedule, Task
from flowgraph.passes.demand import batch_of, chunk_of, unit_of, updates_of
from flowgraph.passes.state import Choices, State
from flowgraph.passes.tasks import form_tasks
from flowgraph.passes.traffic import record_bytes
from flowgraph.passes.words import counted
from flowgraph.runtime.policy.roofline import shape_of

AHEAD = 2
LEAST_BYTES = 1 << 20
LEAST_POOL = 1 << 26
ROOM = 4
"""Lengths are expectations: a channel gets this many times the bytes expected."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Requires placed groups. Ensures tasks, schedule, a channel for every stream that crosses a
    task's border, and pools that hold what their group's channels may. Changes nothing else.

    No deadlock: a channel holds all records of the steps that may be in flight, so that a task
    which waits for several streams (a join, an update) never waits for room in one of them.
    """

    name: ClassVar[str] = "wire"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        tasks = form_tasks(index(state.graph))
        schedule = _schedule(state, choices)
        made: dict[str, tuple[Channel, ...]] = {}
        for stream in state.graph.streams:
            makers, into = _ends(state, stream, tasks)
            if into:
                channel = _channel(state, stream, [*makers, *into], schedule, choices)
                made[makers[0]] = (*made.get(makers[0], ()), channel)
        pool = _pool(state, made, schedule.ahead, choices)
        channels = tuple(
            replace(channel, capacity_bytes=min(channel.capacity_bytes, pool))
            for own in made.values()
            for channel in own
        )
        return choices.onto(
            state, tasks=tasks, schedule=schedule, channels=channels, pool_bytes=pool
        )


def _schedule(state: State, choices: Choices) -> Schedule:
    graph = state.graph
    batch, updates = batch_of(graph), updates_of(graph)
    chunk = choices.choose("schedule", "chunk", *chunk_of(graph))
    if (batch // updates) % chunk:
        raise PlanError(
            f"schedule.chunk: {batch} samples / {updates} updates = {batch // updates} samples an "
            f"update, which chunks of {chunk} do not divide",
            hint=f"schedule.chunk={math.gcd(batch // updates, chunk)}",
        )
    return Schedule(
        batch=batch,
        chunk=chunk,
        unit=choices.choose("schedule", "unit", *unit_of(graph)),
        updates=updates,
        ahead=choices.choose(
            "schedule", "ahead", AHEAD, "what needs no weights is made while the step trains"
        ),
        mode=choices.choose(
            "schedule",
            "mode",
            "pipeline",
            "the update waits for the whole step either way",
            runner_up="barrier",
        ),
    )


def _ends(state: State, stream: Stream, tasks: tuple[Task, ...]) -> tuple[list[str], list[str]]:
    """Groups that make the stream and groups that read it; nobody when it stays in one task."""
    maker = {name: task.group for task in tasks for name in task.outputs}
    if stream.kind == "gradient":
        trainer = next(task for task in tasks if stream.producer in task.stages)
        return [trainer.group], [maker[stream.name.removesuffix(".gradient")]]
    if stream.kind == "weights":
        module = stream.name.removesuffix(".weights")
        engines = [g.name for g in state.groups if g.kind == "engine" and g.module == module]
        return [f"{module}.gang"], engines
    into = [task.group for task in tasks if stream.name in task.inputs]
    return ([maker[stream.name]] if into else []), list(dict.fromkeys(into))


def _channel(
    state: State, stream: Stream, ends: list[str], schedule: Schedule, choices: Choices
) -> Channel:
    nodes = {p.node for g in state.groups if g.name in ends for p in g.places}
    transport = choices.choose(
        stream.name,
        "transport",
        "shared-memory" if len(nodes) == 1 else "zeromq",
        f"all on {min(nodes)}" if len(nodes) == 1 else counted(len(nodes), "node"),
    )
    if stream.kind == "weights":
        module = state.graph.module(stream.name.removesuffix(".weights"))
        shape = shape_of(module)
        size, records = 2 * shape.parameters * shape.bytes, 2
        because = f"2 versions of {shape.parameters} parameters"
    else:
        rate = state.rates[stream.name]
        # What may run ahead of the step that trains holds its records too.
        steps = 1 + (schedule.ahead if stream.kind == "data" else 0)
        records = max(1, math.ceil(steps * ROOM * schedule.batch * rate))
        a_record = record_bytes(stream.type, state.tokens.get(stream.name, 0.0))
        size = records * a_record
        each = f"{counted(steps, 'step')} x {float(schedule.batch * rate):g} records"
        because = f"{each}, {ROOM} times over"
    choices.choose(stream.name, "capacity", f"{size / 2**20:.1f} MiB", because)
    return Channel(
        stream=stream.name,
        transport=transport,
        capacity_bytes=max(LEAST_BYTES, size),
        capacity_records=records,
        kind=stream.kind,
    )


def _pool(
    state: State, made: Mapping[str, tuple[Channel, ...]], ahead: int, choices: Choices
) -> int:
    """Bytes of a worker's pool segment: what the channels of a group may hold, if that fits.

    Where memory is short the pool is smaller, and producers wait sooner; it must hold a step.
    """
    wanted = {name: sum(c.capacity_bytes for c in own) for name, own in made.items()}
    most = max(wanted, key=lambda name: wanted[name], default="")
    size = 1 << (max(LEAST_POOL, wanted.get(most, 0)) - 1).bit_length()
    because = f"the channels of {most} fill it" if size > LEAST_POOL else "the least"
    room, node, workers = _room(state)
    if size > room:
        size = 1 << (max(1, room).bit_length() - 1)
        because = f"half of the memory of {node}, over {counted(workers, 'worker')}"
    step = max((sum(_a_step(c, ahead) for c in own) for own in made.values()), default=0)
    if size < step:
        raise PlanError(
            f"a step's records need {step / 2**20:.0f} MiB in the pool of a worker, and {node} has "
            f"room for {size / 2**20:.0f} MiB: {because}",
            hint="a smaller batch, fewer workers, or a node with more memory",
        )
    return choices.choose("pool", "bytes", size, because)


def _a_step(channel: Channel, ahead: int) -> int:
    """Bytes that one step is expected to put into the channel."""
    if channel.kind == "weights":
        return channel.capacity_bytes
    return channel.capacity_bytes // (ROOM * (1 + (ahead if channel.kind == "data" else 0)))


def _room(state: State) -> tuple[int, str, int]:
    """(bytes, node, workers on it) of the pool for which the scarcest node has memory."""
    workers, held = Counter[str](), Counter[str]()
    for group in state.groups:
        for place in group.places:
            workers[place.node] += 1
            held[place.node] += state.costs[group.name].memory_bytes
    found: list[tuple[int, str, int]] = []
    for node in state.cluster.nodes:
        count = workers[node.name]
        # Models on accelerators take nothing of the host's memory.
        models = held[node.name] if state.cluster.kind(node.device).kind == "cpu" else 0
        if count and node.memory_bytes:
            found.append(((node.memory_bytes // 2 - models) // count, node.name, count))
    return min(found, default=(1 << 62, "", 0))
