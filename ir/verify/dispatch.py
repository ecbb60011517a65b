"""Rules of what a plan dispatches: its schedule, its tasks, and the channels between them."""

import math

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Stage
from flowgraph.ir.verify.faults import nearest, repeated
from flowgraph.ir.verify.plan_index import PlanFaults, PlanIndex, PlanRule, plan_fault

TASK_KINDS = {"host": "stage", "apply": "gang", "train": "gang"}
"""By kind of task, the kind of group that runs it."""

TRANSPORTS = ("in-process", "shared-memory", "zeromq", "device-ipc", "device-collective")
MODES = ("pipeline", "barrier")
COUNTS = ("batch", "chunk", "unit", "updates", "ahead")


def _of_schedule(name: str, expects: str, got: str, hint: str | None) -> PlanError:
    return PlanError(
        f"schedule {name!r}: expects {expects}, got {got}", hint=hint, node="schedule", term=name
    )


def schedule_is_counted(at: PlanIndex) -> PlanFaults:
    """The schedule's counts are positive."""
    for name in COUNTS:
        value = getattr(at.plan.schedule, name)
        if value < 1:
            yield _of_schedule(name, "at least 1", str(value), f"{name}=1")


def chunks_divide_updates(at: PlanIndex) -> PlanFaults:
    """Chunks cut each update's samples evenly."""
    schedule = at.plan.schedule
    each, left = divmod(schedule.batch, schedule.updates)
    if left or each % schedule.chunk:
        hint = "as many updates as divide the batch"
        yield _of_schedule(
            "chunk",
            f"to divide {schedule.batch} samples / {schedule.updates} updates",
            str(schedule.chunk),
            hint if left else f"chunk={math.gcd(each, schedule.chunk)}",
        )


def mode_is_known(at: PlanIndex) -> PlanFaults:
    """The schedule has a known mode."""
    mode = at.plan.schedule.mode
    if mode not in MODES:
        expects = f"one of {', '.join(MODES)}"
        yield _of_schedule("mode", expects, repr(mode), nearest(mode, MODES))


def tasks_are_named_once(at: PlanIndex) -> PlanFaults:
    """Tasks have names of their own."""
    for name in repeated(task.name for task in at.plan.tasks):
        yield plan_fault("task", name, "a name of its own", "it twice", f"one {name!r}")


def kinds_of_tasks_are_known(at: PlanIndex) -> PlanFaults:
    """A task is of a known kind."""
    for task in at.plan.tasks:
        if task.kind not in TASK_KINDS:
            hint, got = nearest(task.kind, TASK_KINDS), repr(task.kind)
            yield plan_fault("task", task.name, "a kind of task", got, hint, term="kind")


def tasks_are_made_of_stages(at: PlanIndex) -> PlanFaults:
    """A task is made of stages of the graph."""
    for task in at.plan.tasks:
        for name in task.stages:
            if name not in at.flow.stages:
                hint = nearest(name, at.flow.stages)
                expects = "stages of the graph"
                yield plan_fault("task", task.name, expects, repr(name), hint, term=name)


def tasks_have_groups(at: PlanIndex) -> PlanFaults:
    """A task is run by a group of its kind."""
    for task in at.plan.tasks:
        group, kind = at.groups.get(task.group), TASK_KINDS[task.kind]
        if group is None or group.kind != kind:
            got = f"{task.group!r}" + (
                f", a group of kind {group.kind!r}" if group else ", no group"
            )
            hint = nearest(task.group, (g.name for g in at.plan.groups if g.kind == kind))
            expects = f"a {kind} group to run it"
            yield plan_fault("task", task.name, expects, got, hint, term="group")


def stages_have_tasks(at: PlanIndex) -> PlanFaults:
    """Each stage is in one task (a join or pack in each of its trainers'), evaluations in none."""
    counts = dict.fromkeys(at.flow.stages, 0)
    for task in at.plan.tasks:
        for name in task.stages:
            counts[name] += 1
    for stage in at.plan.graph.stages:
        wanted, have = 0 if stage.op == "evaluate" else 1, counts[stage.name]
        if have != wanted and not (have and _may_repeat(stage)):
            hint = (
                "name it among a task's stages" if have < wanted else "leave it out of the others"
            )
            yield plan_fault("stage", stage.name, f"{wanted} tasks to run it", str(have), hint)


def _may_repeat(stage: Stage) -> bool:
    return stage.op in ("join", "pack")


def tasks_read_what_tasks_make(at: PlanIndex) -> PlanFaults:
    """A task reads what crosses another one's border."""
    for task in at.plan.tasks:
        for stream in task.inputs:
            if stream not in at.makers:
                hint = nearest(stream, at.makers)
                expects = "inputs that a task makes"
                yield plan_fault("task", task.name, expects, repr(stream), hint, term=stream)


def tasks_are_in_order(at: PlanIndex) -> PlanFaults:
    """A task stands after those it reads."""
    made: set[str] = set()
    for task in at.plan.tasks:
        for stream in task.inputs:
            if stream not in made:
                other = at.makers[stream].name
                hint = f"{other!r} before {task.name!r}"
                expects = f"to stand after {other!r}"
                yield plan_fault("task", task.name, expects, "it before", hint, term=stream)
        made.update(task.outputs)


def channels_are_of_streams(at: PlanIndex) -> PlanFaults:
    """A channel is a stream's."""
    for channel in at.plan.channels:
        if channel.stream not in at.flow.streams:
            hint = nearest(channel.stream, at.flow.streams)
            expects, got = "a stream of the graph", "no such stream"
            yield plan_fault("channel", channel.stream, expects, got, hint)


def streams_have_one_channel(at: PlanIndex) -> PlanFaults:
    """A stream has one channel."""
    for name in repeated(channel.stream for channel in at.plan.channels):
        yield plan_fault("channel", name, "one channel of a stream", "two", "leave one out")


def channels_cover_borders(at: PlanIndex) -> PlanFaults:
    """Each stream between tasks has a channel."""
    have = {channel.stream for channel in at.plan.channels}
    for task in at.plan.tasks:
        for stream in task.inputs:
            if stream not in have:
                hint = f'channel "{stream}" ...'
                expects = f"a channel for {stream!r}"
                yield plan_fault("task", task.name, expects, "none", hint, term=stream)


def transports_are_known(at: PlanIndex) -> PlanFaults:
    """A channel has a known transport."""
    for channel in at.plan.channels:
        if channel.transport not in TRANSPORTS:
            hint, got = nearest(channel.transport, TRANSPORTS), repr(channel.transport)
            yield plan_fault("channel", channel.stream, "a transport", got, hint, term="transport")


def channels_hold_units(at: PlanIndex) -> PlanFaults:
    """A channel of data has room for a unit's records."""
    unit = max(at.plan.schedule.unit, at.plan.schedule.chunk)
    for channel in at.plan.channels:
        if channel.kind == "data" and channel.capacity_records < 1:
            yield plan_fault(
                "channel",
                channel.stream,
                f"room for a unit of {unit} samples",
                f"{channel.capacity_records} records",
                f"capacity_records={unit} or more",
                term="capacity_records",
            )


def channels_fit_the_pool(at: PlanIndex) -> PlanFaults:
    """A channel has a budget, which the pool holds unless devices do."""
    pool = at.plan.pool_bytes
    for channel in at.plan.channels:
        pooled = not channel.transport.startswith("device-")
        if channel.capacity_bytes < 1 or (pooled and channel.capacity_bytes > pool):
            yield plan_fault(
                "channel",
                channel.stream,
                f"a budget within the pool's {pool} bytes",
                f"{channel.capacity_bytes} bytes",
                f"capacity_bytes={pool}" if channel.capacity_bytes > pool else "capacity_bytes=1",
                term="capacity_bytes",
            )


def agents_have_engines(at: PlanIndex) -> PlanFaults:
    """Whoever plays has an engine that answers, one group each."""
    counts: dict[str, int] = {}
    for group in at.plan.groups:
        if group.kind == "engine":
            for agent in group.agents:
                counts[agent] = counts.get(agent, 0) + 1
    for stage in at.plan.graph.by_op("episodes"):
        for agent in stage.agents:
            count = counts.get(agent, 0)
            if count != 1:
                hint = f"one engine group with {agent!r} among its agents"
                yield plan_fault("agent", agent, "one group of engines", str(count), hint)


SCHEDULE_RULES: tuple[PlanRule, ...] = (
    schedule_is_counted,
    chunks_divide_updates,
    mode_is_known,
)

TASK_RULES: tuple[PlanRule, ...] = (
    tasks_are_named_once,
    kinds_of_tasks_are_known,
    tasks_are_made_of_stages,
    tasks_have_groups,
    stages_have_tasks,
    tasks_read_what_tasks_make,
    tasks_are_in_order,
    channels_are_of_streams,
    streams_have_one_channel,
    channels_cover_borders,
    transports_are_known,
    channels_hold_units,
    channels_fit_the_pool,
    agents_have_engines,
)
