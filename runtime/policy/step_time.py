"""What each kind of work takes, and the least that a step made of it can take.

The one model of time: the passes weigh plans by it, the simulator hands out work by it, and a
measured run replaces its numbers (never its form). All seconds are of one core or device that the
work has for itself; who shares one, and for how long, is the simulator's question.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.plan import Plan, Task, WorkerGroup
from flowgraph.runtime.policy.roofline import (
    SAMPLE_TOKENS,
    Device,
    Shape,
    device_of,
    device_of_kind,
    kv_bytes,
    shape_of,
)

STAGE_SECONDS = 2e-4
"""What the user's code takes a sample or a trajectory. Only a profile can know."""

ITEM_SECONDS = 2e-4
"""A worker's own work an item: reading blocks, the event loop, writing blocks, the message."""

EVENT_SECONDS = 1e-4
"""The orchestrator's work a message: decoding, the transition, encoding, the log. Measured on
2 cores of Zen 3 at 40-200 µs, growing with the message."""

WIRE_SECONDS = 6e-5
"""One way of a small message between two processes: half of 0.08-0.18 ms a round trip."""


DISK_BANDWIDTH = 1e9
"""Bytes/s written to a local disk that may cache them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """A host task: an item, each sample (or record) in it, each generate call issued by it."""

    item_s: float = ITEM_SECONDS
    sample_s: float = STAGE_SECONDS
    call_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """One engine. read_s: the weights' way from memory, under which no iteration can be;
    row_read_s: that of a running call's keys and values.

    prefill_s: a prefill, whatever is in it. iteration_s: a decode step, whatever is in it; row_s:
    each running call in it. load_s: new weights.
    """

    prefill_s: float = 0.0
    prefill_token_s: float = 0.0
    iteration_s: float = 0.0
    row_s: float = 0.0
    read_s: float = 0.0
    row_read_s: float = 0.0
    load_s: float = 0.0

    def prefill(self, tokens: float) -> float:
        """Seconds of one prefill of prompts with `tokens` altogether."""
        return self.prefill_s + self.prefill_token_s * tokens

    def iteration(self, rows: float) -> float:
        """Seconds of one decode step for `rows` running calls."""
        return self.iteration_s + max(self.read_s + self.row_read_s * rows, self.row_s * rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTimes:
    """A gang's task, by what its rows weigh: tokens, or records where there are none.

    item_s, weight_s: forward of an apply, forward and backward of a train. backward_*: of an
    apply's items, once their gradient is there. evaluate: an evaluation's share of the time.
    """

    item_s: float = 0.0
    weight_s: float = 0.0
    backward_item_s: float = 0.0
    backward_weight_s: float = 0.0
    evaluate: float = 1.0

    def forward(self, weight: float, variant: int) -> float:
        share = self.evaluate if variant else 1.0
        return share * (self.item_s + self.weight_s * weight)

    def backward(self, weight: float) -> float:
        return self.backward_item_s + self.backward_weight_s * weight


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """All that a plan's step is made of. hosts, tasks: by task; engines: by group; updates, saves:
    by module, an optimizer update with the publishing of its weights, and a checkpoint.
    measured: not an estimate; saves_measured: nor are the checkpoints' times.
    """

    hosts: Mapping[str, HostTimes] = field(default_factory=dict)
    engines: Mapping[str, EngineTimes] = field(default_factory=dict)
    tasks: Mapping[str, TaskTimes] = field(default_factory=dict)
    updates: Mapping[str, float] = field(default_factory=dict)
    saves: Mapping[str, float] = field(default_factory=dict)
    event_s: float = EVENT_SECONDS
    wire_s: float = WIRE_SECONDS
    measured: bool = False
    saves_measured: bool = False


def engine_times(
    shape: Shape, device: Device, *, prompt: float, response: float, kv_bytes: int = 0
) -> EngineTimes:
    """From a roofline; prompt, response: tokens of a call, which attention looks at.

    kv_bytes: of a token's keys and values. In the mean half of a response is there when the next
    token of it is decoded.
    """
    context = prompt + response / 2
    return EngineTimes(
        prefill_s=device.launches(shape),
        prefill_token_s=device.compute(shape, tokens=1.0, length=prompt, passes=1),
        iteration_s=device.launches(shape),
        # One token looks at all before it, a causal sequence's tokens at half of it in the mean.
        row_s=shape.flops_a_token(2 * context) / device.peak(shape),
        read_s=shape.parameters * shape.bytes / device.bandwidth,
        row_read_s=kv_bytes * context / device.bandwidth,
        load_s=2.0 * shape.parameters * shape.bytes / device.bandwidth,
    )


def train_times(shape: Shape, device: Device, *, length: float, a_record: float) -> TaskTimes:
    """Forward and backward. a_record: tokens that one unit of weight stands for."""
    token = device.compute(shape, tokens=1.0, length=length, passes=3)
    return TaskTimes(
        item_s=3.0 * device.launches(shape), weight_s=token * a_record, evaluate=1.0 / 3.0
    )


def apply_times(shape: Shape, device: Device, *, length: float, a_record: float) -> TaskTimes:
    """Forward now, twice as much backward when the gradient is there."""
    token = device.compute(shape, tokens=1.0, length=length, passes=1)
    launches = device.launches(shape)
    return TaskTimes(
        item_s=launches,
        weight_s=token * a_record,
        backward_item_s=2.0 * launches,
        backward_weight_s=2.0 * token * a_record,
    )


def update_seconds(shape: Shape, device: Device) -> float:
    """Gradients, weights and two moments are read, three of them written, and one copy made."""
    return 8.0 * shape.parameters * 4 / device.bandwidth


def save_seconds(shape: Shape) -> float:
    """Weights and two moments, which are in the weights' dtype as torch's are, to a disk."""
    return 3.0 * shape.parameters * shape.bytes / DISK_BANDWIDTH


def bound_seconds(
    seconds: Mapping[str, float], groups: Iterable[WorkerGroup], cluster: Cluster
) -> float:
    """The least that a step can take: of the busiest process, and of the most crowded cores.

    seconds: of a step's work on one process, by group. Parts overlap on devices of their own and
    add up on shared cores. Waiting, the order of work and its granularity come on top.
    """
    shared = {n.name: n.cores for n in cluster.nodes if cluster.kind(n.device).kind == "cpu"}
    busy: dict[str, float] = {}
    for group in groups:
        for place in group.places:
            if place.node in shared:
                busy[place.node] = busy.get(place.node, 0.0) + seconds[group.name]
    crowded = [total / shared[node] for node, total in busy.items()]
    return max([*seconds.values(), *crowded])


def expected(values: Mapping[str, object], name: str, default: float) -> float:
    """An agent's expected `name`: a number, or the mean of a spread."""
    value = values.get(name, default)
    if isinstance(value, Mapping):
        value = value.get("mean", default)
    return float(value) if isinstance(value, int | float) else default


def estimated(plan: Plan) -> StepTimes:
    """The times of a plan's work as the passes took them for its layouts, measured ones included;
    from its models' descriptions where the plan does not say. Nothing is run."""
    graph, told = plan.graph, plan.prediction.times
    trained = [m.name for m in graph.modules if m.trainable is not False]
    devices = {group.name: _device(plan, group) for group in plan.groups}
    sample = told.get("host.sample_s", STAGE_SECONDS)
    models = [group.name for group in plan.groups if group.kind != "stage"]
    return StepTimes(
        hosts={task.name: HostTimes(sample_s=sample) for task in plan.tasks if task.kind == "host"},
        engines={
            group.name: _engine(plan, group, devices[group.name])
            for group in plan.groups
            if group.kind == "engine"
        },
        tasks={
            task.name: _task(plan, task, devices.get(task.group, device_of(plan.cluster)))
            for task in plan.tasks
            if task.kind != "host"
        },
        updates={
            name: told.get(
                f"{name}.gang.update_s",
                update_seconds(
                    shape_of(graph.module(name)),
                    devices.get(f"{name}.gang", device_of(plan.cluster)),
                ),
            )
            for name in trained
        },
        saves={name: save_seconds(shape_of(graph.module(name))) for name in trained},
        measured=bool(models) and {*models} <= {*plan.prediction.measured},
    )


PROMPT_TOKENS, RESPONSE_TOKENS = 32, 32
"""Of a call whose agent says nothing."""


def _device(plan: Plan, group: WorkerGroup) -> Device:
    """What the group is placed on."""
    if not group.places:
        return device_of(plan.cluster)
    node = next(node for node in plan.cluster.nodes if node.name == group.places[0].node)
    return device_of_kind(plan.cluster.kind(node.device))


def _engine(plan: Plan, group: WorkerGroup, device: Device) -> EngineTimes:
    agent, module = plan.graph.agent(group.agents[0]), plan.graph.module(group.module)
    times = engine_times(
        shape_of(module),
        device,
        prompt=expected(agent.expect, "prompt", PROMPT_TOKENS),
        response=expected(agent.expect, "response", RESPONSE_TOKENS),
        kv_bytes=kv_bytes(module),
    )
    told = plan.prediction.times
    found = {
        field.name: told[name]
        for field in fields(EngineTimes)
        if (name := f"{group.name}.{field.name}") in told
    }
    return replace(times, **found)


def _task(plan: Plan, task: Task, device: Device) -> TaskTimes:
    graph, stage = plan.graph, plan.graph.stage(task.stages[-1])
    shape = shape_of(graph.module(stage.modules[0]))
    has_tokens = graph.stream(stage.inputs[0]).type.field("tokens") is not None
    make = train_times if stage.op == "train" else apply_times
    a_record = 1.0 if has_tokens else float(SAMPLE_TOKENS)
    times = make(shape, device, length=SAMPLE_TOKENS, a_record=a_record)
    told = plan.prediction.times
    weight = told.get(f"{task.group}.{'token_s' if has_tokens else 'record_s'}")
    item = told.get(f"{task.group}.item_s")
    if weight is not None and item is not None:
        return _as_told(graph, stage, times, weight, item)
    if reference := stage.attributes.get("reference"):
        other = shape_of(graph.module(str(reference)))
        more = device.compute(other, tokens=1.0, length=SAMPLE_TOKENS, passes=1) * a_record
        return replace(
            times,
            item_s=times.item_s + device.launches(other),
            weight_s=times.weight_s + more,
        )
    return times


def _as_told(graph: Graph, stage: Stage, times: TaskTimes, weight: float, item: float) -> TaskTimes:
    """A gang's seconds are of forward and backward where its module is trained."""
    trained = {name for s in graph.by_op("train") for name in s.modules}
    if stage.op == "train":
        return replace(times, weight_s=weight, item_s=item)
    if stage.modules[0] not in trained:
        return TaskTimes(weight_s=weight, item_s=item)
    return TaskTimes(
        weight_s=weight / 3,
        item_s=item / 3,
        backward_weight_s=2 * weight / 3,
        backward_item_s=2 * item / 3,
    )
