"""wire: tasks, the channels between them, their budgets, and the schedule."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Stream
from flowgraph.ir.index import attribute, index
from flowgraph.ir.plan import Channel, Schedule, Task, WorkerGroup
from flowgraph.passes.demand import accelerated, batch_of, chunk_of, unit_of, updates_of
from flowgraph.passes.room_check import POOLED, SHARES, still
from flowgraph.passes.state import Choices, State
from flowgraph.passes.tasks import form_tasks
from flowgraph.passes.traffic import record_bytes
from flowgraph.passes.words import counted
from flowgraph.runtime.policy.roofline import shape_of

AHEAD = 2
FETCHED_AHEAD = 3
"""Items in a rank's hand where they come from other nodes: one that it works on, one that travels
meanwhile, and one whose order is on its way since the last was done."""

LEAST_BYTES = 1 << 20
LEAST_POOL = 1 << 26
ROOM = 4
"""Lengths are expectations: a channel gets this many times the bytes expected."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Requires placed groups. Ensures tasks, schedule, a channel for every stream that crosses a
    task's border, pools that hold what their group's channels may, and enough items in the hands of
    ranks that read another node's. Changes nothing else.

    No deadlock: the bounded graph is run once, by its channels' budgets and by its pools alone
    (`bounded` says why that is a proof). What would wait for ever makes less ahead, and is refused
    when it still would.
    """

    name: ClassVar[str] = "wire"

    def apply(self, state: State) -> State:
        tasks = form_tasks(index(state.graph))
        pinned = state.pins.get("schedule", "ahead")
        waits: dict[str, str] = {}
        for ahead in [pinned] if pinned else range(max(AHEAD, *_late(state)), 0, -1):
            wired = _wired(state, tasks, ahead)
            waits = still(wired)
            if not waits:
                return wired
        told = "; ".join(f"{name} for {what}" for name, what in waits.items())
        raise PlanError(
            f"the tasks would wait for one another for ever, with {_room(state)[0] >> 20} MiB for "
            f"the pool of a worker: {told}",
            hint="a smaller batch, fewer workers, or a node with more memory",
        )


def _late(state: State) -> tuple[int, ...]:
    """Steps by which samples may be early, as the train stages declare."""
    return (0, *(attribute(stage, "staleness") for stage in state.graph.by_op("train")))


def _wired(state: State, tasks: tuple[Task, ...], ahead: int) -> State:
    """The plan's parts when what needs no weights may be `ahead` steps early."""
    choices = Choices(Wire.name, state.pins)
    schedule = _schedule(state, choices, ahead)
    ends = Ends.of(tasks)
    made: dict[str, tuple[Channel, ...]] = {}
    fetching: set[str] = set()
    for stream in state.graph.streams:
        makers, into = _ends(state, stream, ends)
        if into:
            channel = _channel(state, stream, [*makers, *into], schedule, choices)
            made[makers[0]] = (*made.get(makers[0], ()), channel)
            fetching |= set(into) if channel.transport == "zeromq" else set()
    pool = _pool(state, made, schedule.ahead, choices)
    channels = tuple(
        replace(channel, capacity_bytes=min(channel.capacity_bytes, pool))
        if channel.transport in POOLED
        else channel
        for own in made.values()
        for channel in own
    )
    groups = tuple(_in_hand(group, group.name in fetching, choices) for group in state.groups)
    return choices.onto(
        state, groups=groups, tasks=tasks, schedule=schedule, channels=channels, pool_bytes=pool
    )


def _in_hand(group: WorkerGroup, fetches: bool, choices: Choices) -> WorkerGroup:
    """A rank that fetches what it reads holds one item more, so that it comes in time."""
    if group.kind != "gang" or not fetches:
        return group
    because = "what it reads of other nodes travels while it computes"
    held = choices.choose(group.name, "in_flight", FETCHED_AHEAD, because, group.in_flight)
    return replace(group, in_flight=held)


def _schedule(state: State, choices: Choices, ahead: int) -> Schedule:
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
        unit=choices.choose("schedule", "unit", *unit_of(state)),
        updates=updates,
        ahead=choices.choose(
            "schedule",
            "ahead",
            ahead,
            "what needs no weights is made while the step trains"
            if ahead >= AHEAD
            else f"with {ahead + 1} the pools would fill before a step is whole",
        ),
        mode=choices.choose(
            "schedule",
            "mode",
            "pipeline",
            "the update waits for the whole step either way",
            runner_up="barrier",
        ),
    )


@dataclass(frozen=True, slots=True)
class Ends:
    """Groups by what they do: make a stream, read it, run a stage."""

    makers: Mapping[str, str]
    readers: Mapping[str, list[str]]
    runners: Mapping[str, str]

    @classmethod
    def of(cls, tasks: tuple[Task, ...]) -> "Ends":
        readers: dict[str, list[str]] = {}
        for task in tasks:
            for name in task.inputs:
                readers.setdefault(name, []).append(task.group)
        return cls(
            {name: task.group for task in tasks for name in task.outputs},
            readers,
            {name: task.group for task in tasks for name in task.stages},
        )


def _ends(state: State, stream: Stream, ends: Ends) -> tuple[list[str], list[str]]:
    """Groups that make the stream and groups that read it; nobody when it stays in one task."""
    if stream.kind == "gradient":
        maker = ends.makers[stream.name.removesuffix(".gradient")]
        return [ends.runners[stream.producer]], [maker]
    if stream.kind == "weights":
        module = stream.name.removesuffix(".weights")
        engines = [g.name for g in state.groups if g.kind == "engine" and g.module == module]
        return [f"{module}.gang"], engines
    into = list(dict.fromkeys(ends.readers.get(stream.name, ())))
    return ([ends.makers[stream.name]] if into else []), into


def _channel(
    state: State, stream: Stream, ends: list[str], schedule: Schedule, choices: Choices
) -> Channel:
    nodes = {p.node for g in state.groups if g.name in ends for p in g.places}
    one = len(nodes) == 1
    transport = "shared-memory" if one else "zeromq"
    because = f"all on {min(nodes)}" if one else counted(len(nodes), "node")
    if stream.kind == "weights" and accelerated(state):
        # Weights never pass through the hosts' memory there: nothing of them is in a pool.
        transport = "device-ipc" if one else "device-collective"
        because = f"from device to device, {because}"
    transport = choices.choose(stream.name, "transport", transport, because)
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
        a_record = record_bytes(stream.type, state.lengths.get(stream.name, {}))
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
    pooled = {n: [c for c in own if c.transport in POOLED] for n, own in made.items()}
    workers_of = {group.name: group.replicas for group in state.groups}
    wanted = {
        name: math.ceil(sum(c.capacity_bytes for c in own) / min(workers_of[name], SHARES))
        for name, own in pooled.items()
    }
    most = max(wanted, key=lambda name: wanted[name], default="")
    size = 1 << (max(LEAST_POOL, wanted.get(most, 0)) - 1).bit_length()
    because = f"the channels of {most} fill it" if size > LEAST_POOL else "the least"
    room, node, workers = _room(state)
    if size > room:
        size = max(0, room) // LEAST_BYTES * LEAST_BYTES
        because = f"half of what models leave of {node}, over {counted(workers, 'worker')}"
    step = max(
        (
            math.ceil(sum(_a_step(c, ahead) for c in own) / min(workers_of[name], SHARES))
            for name, own in pooled.items()
        ),
        default=0,
    )
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
            found.append(((node.memory_bytes - models) // 2 // count, node.name, count))
    return min(found, default=(1 << 62, "", 0))
