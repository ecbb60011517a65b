"""Legality of the plan dialect: that the runtime can execute it as it stands.

A broken rule in a plan that the compiler just made is our bug; in a file it is the file's fault.
Both are told as PlanError, and the pipeline turns its own into an InternalError.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flowgraph.ir.errors import ConfigurationError, PlanError
from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, index
from flowgraph.ir.plan import Plan, Task, WorkerGroup
from flowgraph.ir.verify.cluster import cluster_faults
from flowgraph.ir.verify.faults import nearest

TASK_KINDS = {"host": "stage", "apply": "gang", "train": "gang"}
"""By kind of task, the kind of group that runs it."""

TRANSPORTS = ("in-process", "shared-memory", "zeromq", "device-ipc", "device-collective")
MODES = ("pipeline", "barrier")
RESIDENCIES = ("resident", "offloaded", "destroyed")

Faults = Iterator[PlanError | ConfigurationError]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanIndex:
    """A plan by name. makers: stream to the task that hands it over its border."""

    plan: Plan
    flow: Index
    groups: Mapping[str, WorkerGroup]
    makers: Mapping[str, Task]


def plan_index(plan: Plan) -> PlanIndex:
    return PlanIndex(
        plan=plan,
        flow=index(plan.graph),
        groups={group.name: group for group in plan.groups},
        makers={stream: task for task in plan.tasks for stream in task.outputs},
    )


def _fault(kind: str, name: str, expects: str, got: str, hint: str | None = None) -> PlanError:
    return PlanError(
        f"{kind} {name!r}: expects {expects}, got {got}", hint=hint, node=f'{kind} "{name}"'
    )


def names_are_unique(at: PlanIndex) -> Faults:
    """Tasks and groups each have names of their own."""
    parts: Iterable[tuple[str, list[str]]] = (
        ("task", [task.name for task in at.plan.tasks]),
        ("group", [group.name for group in at.plan.groups]),
    )
    for kind, names in parts:
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield _fault(kind, name, "a name of its own", "it twice")


def cluster_is_whole(at: PlanIndex) -> Faults:
    """Nodes have declared kinds of devices, and counts make sense."""
    yield from cluster_faults(at.plan.cluster)


def tasks_are_legal(at: PlanIndex) -> Faults:
    """Tasks are of known kinds, made of stages of the graph, and run by a group of their kind."""
    for task in at.plan.tasks:
        if task.kind not in TASK_KINDS:
            hint = nearest(task.kind, TASK_KINDS)
            yield _fault("task", task.name, "a kind of task", repr(task.kind), hint)
            continue
        for name in task.stages:
            if name not in at.flow.stages:
                hint = nearest(name, at.flow.stages)
                yield _fault("task", task.name, "stages of the graph", repr(name), hint)
        group = at.groups.get(task.group)
        if group is None or group.kind != TASK_KINDS[task.kind]:
            got = f"{task.group!r}" + (
                f", a group of kind {group.kind!r}" if group else ", no group"
            )
            yield _fault("task", task.name, f"a {TASK_KINDS[task.kind]} group to run it", got)


def stages_have_tasks(at: PlanIndex) -> Faults:
    """Each stage is in one task (a join or pack in each of its trainers'), evaluations in none."""
    counts = dict.fromkeys(at.flow.stages, 0)
    for task in at.plan.tasks:
        for name in task.stages:
            counts[name] = counts.get(name, 0) + 1
    for stage in at.plan.graph.stages:
        wanted = 0 if stage.op == "evaluate" else 1
        if counts[stage.name] != wanted and not (counts[stage.name] and _may_repeat(stage)):
            yield _fault("stage", stage.name, f"{wanted} tasks to run it", str(counts[stage.name]))


def _may_repeat(stage: Stage) -> bool:
    return stage.op in ("join", "pack")


def tasks_are_in_order(at: PlanIndex) -> Faults:
    """A task stands after those it reads, and reads what crosses a border."""
    made: set[str] = set()
    for task in at.plan.tasks:
        for stream in task.inputs:
            if stream not in at.makers:
                yield _fault("task", task.name, "inputs that a task makes", repr(stream))
            elif stream not in made:
                other = at.makers[stream].name
                yield _fault("task", task.name, f"to stand after {other!r}", "it before")
        made.update(task.outputs)


def channels_cover_borders(at: PlanIndex) -> Faults:
    """Each stream between tasks has one channel; channels are of streams, with room for a unit."""
    channels = at.plan.channels
    unit = max(at.plan.schedule.unit, at.plan.schedule.chunk)
    for name in sorted(
        {c.stream for c in channels if sum(d.stream == c.stream for d in channels) > 1}
    ):
        yield _fault("channel", name, "one channel of a stream", "two")
    have = {channel.stream for channel in channels}
    for task in at.plan.tasks:
        for stream in task.inputs:
            if stream not in have:
                yield _fault("task", task.name, f"a channel for {stream!r}", "none")
    for channel in channels:
        if channel.stream not in at.flow.streams:
            hint = nearest(channel.stream, at.flow.streams)
            yield _fault("channel", channel.stream, "a stream of the graph", "no such stream", hint)
        if channel.transport not in TRANSPORTS:
            hint = nearest(channel.transport, TRANSPORTS)
            yield _fault("channel", channel.stream, "a transport", repr(channel.transport), hint)
        if channel.kind == "data" and channel.capacity_records < 1:
            got = f"{channel.capacity_records} records"
            yield _fault("channel", channel.stream, f"room for a unit of {unit} samples", got)
        pooled = not channel.transport.startswith("device-")
        if channel.capacity_bytes < 1 or (pooled and channel.capacity_bytes > at.plan.pool_bytes):
            yield _fault(
                "channel",
                channel.stream,
                f"a budget within the pool's {at.plan.pool_bytes} bytes",
                f"{channel.capacity_bytes} bytes",
            )


def groups_are_legal(at: PlanIndex) -> Faults:
    """A group's module and agents exist; counts are positive; a gang has a rank a process."""
    for group in at.plan.groups:
        if group.kind not in ("stage", "engine", "gang"):
            yield _fault("group", group.name, "a kind of group", repr(group.kind))
        if group.kind in ("engine", "gang") and group.module not in at.flow.modules:
            hint = nearest(group.module, at.flow.modules)
            yield _fault("group", group.name, "a declared module", repr(group.module), hint)
        for agent in group.agents:
            if agent not in at.flow.agents:
                hint = nearest(agent, at.flow.agents)
                yield _fault("group", group.name, "declared agents", repr(agent), hint)
        if group.replicas < 1 or group.in_flight < 1:
            got = f"replicas={group.replicas}, in_flight={group.in_flight}"
            yield _fault("group", group.name, "replicas and in_flight >= 1", got)
        if group.kind == "gang" and group.layout.ranks != group.replicas:
            got = f"{group.layout.ranks} ranks in {group.replicas} processes"
            yield _fault("group", group.name, "a process for each rank", got)
        if group.kind == "engine" and group.replicas % max(1, group.layout.ranks):
            got = f"{group.replicas} processes for engines of {group.layout.ranks}"
            yield _fault("group", group.name, "whole engines", got)
        if group.kind == "engine" and (group.slots < 1 or group.max_length < 1):
            got = f"slots={group.slots}, max_length={group.max_length}"
            yield _fault("group", group.name, "slots and max_length >= 1", got)


def turns_are_taken(at: PlanIndex) -> Faults:
    """Who shares devices takes turns with a gang that has them, on some of its places."""
    for group in at.plan.groups:
        if group.residency not in RESIDENCIES:
            hint = nearest(group.residency, RESIDENCIES)
            yield _fault("group", group.name, "a residency", repr(group.residency), hint)
        if not group.shares:
            continue
        owner = at.groups.get(group.shares)
        if owner is None or owner.kind != "gang" or owner.shares or group.kind != "gang":
            got = repr(group.shares)
            yield _fault("group", group.name, "to share a gang's own devices", got)
        elif not set(group.places) <= set(owner.places):
            yield _fault("group", group.name, f"places of {owner.name!r}", "others")


def rooms_are_legal(at: PlanIndex) -> Faults:
    """Room to move is around what a group has now, and each group has one at most."""
    seen: set[str] = set()
    for room in at.plan.rooms:
        group = at.groups.get(room.group)
        if group is None or room.group in seen:
            hint = nearest(room.group, at.groups)
            yield _fault("room", room.group, "a group of its own", "none or another's", hint)
        elif not 1 <= room.least <= group.replicas <= room.most:
            got = f"{room.least} to {room.most}"
            yield _fault("room", room.group, f"{group.replicas} processes within it", got)
        seen.add(room.group)


def agents_have_engines(at: PlanIndex) -> Faults:
    """Whoever plays has an engine that answers, one group each."""
    for stage in at.plan.graph.by_op("episodes"):
        for agent in stage.agents:
            count = sum(agent in g.agents for g in at.plan.groups if g.kind == "engine")
            if count != 1:
                yield _fault("agent", agent, "one group of engines", str(count))


def places_fit(at: PlanIndex) -> Faults:
    """Each process has a place on a node of the cluster, and no device more workers than slots."""
    nodes = {node.name: node for node in at.plan.cluster.nodes}
    load: dict[tuple[str, int], int] = {}
    for group in at.plan.groups:
        if len(group.places) != group.replicas:
            got = f"{len(group.places)} places"
            yield _fault("group", group.name, f"a place for each of {group.replicas} replicas", got)
        for place in group.places:
            if place.node not in nodes:
                hint = nearest(place.node, nodes)
                yield _fault(
                    "group", group.name, "places on the cluster's nodes", repr(place.node), hint
                )
            elif not -1 <= place.device < nodes[place.node].devices:
                got = f"device {place.device} of {nodes[place.node].devices} on {place.node}"
                yield _fault("group", group.name, "places on devices that there are", got)
            elif place.device >= 0 and not group.shares:
                key = (place.node, place.device)
                load[key] = load.get(key, 0) + 1
    for (name, device), count in sorted(load.items()):
        slots = at.plan.cluster.kind(nodes[name].device).slots
        if count > slots:
            yield _fault("node", name, f"{slots} workers on device {device}", str(count))


def schedule_is_legal(at: PlanIndex) -> Faults:
    """Chunks cut each update's samples evenly; counts are positive."""
    schedule = at.plan.schedule
    named = {
        "batch": schedule.batch,
        "chunk": schedule.chunk,
        "unit": schedule.unit,
        "updates": schedule.updates,
        "ahead": schedule.ahead,
    }
    for name, value in named.items():
        if value < 1:
            yield _fault("schedule", name, "at least 1", str(value))
            return
    if schedule.batch % schedule.updates or (schedule.batch // schedule.updates) % schedule.chunk:
        yield _fault(
            "schedule",
            "chunk",
            f"to divide {schedule.batch} samples / {schedule.updates} updates",
            str(schedule.chunk),
        )
    if schedule.mode not in MODES:
        yield _fault("schedule", "mode", f"one of {', '.join(MODES)}", repr(schedule.mode))


PlanRule = Callable[[PlanIndex], Faults]

PLAN_RULES: tuple[PlanRule, ...] = (
    names_are_unique,
    cluster_is_whole,
    schedule_is_legal,
    groups_are_legal,
    places_fit,
    tasks_are_legal,
    stages_have_tasks,
    tasks_are_in_order,
    channels_cover_borders,
    agents_have_engines,
    turns_are_taken,
    rooms_are_legal,
)
"""In this order: a rule may rest on those before it."""


def plan_faults(plan: Plan) -> Faults:
    """All faults of the first rule that finds any."""
    at = plan_index(plan)
    for rule in PLAN_RULES:
        faults = list(rule(at))
        yield from faults
        if faults:
            return


def verify_plan(plan: Plan) -> None:
    """Raises PlanError, or ConfigurationError for the cluster, for the first rule broken."""
    for fault in plan_faults(plan):
        raise fault
