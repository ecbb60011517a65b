"""The plan dialect: workers, tasks, placement, channels, budgets, schedule, and the reasons.

A plan is data: it embeds the checked graph and is all that the runtime is given. The runtime
executes *tasks* (stages fused into one unit of dispatch) on *worker groups*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One choice of a pass. `binding` is the constraint that stopped a better value."""

    by: str  # the pass
    subject: str  # stage, module, agent or stream
    name: str  # replicas, ranks, chunk, transport, ...
    value: Any
    runner_up: Any = None
    binding: str = ""
    pinned: bool = False

    def __str__(self) -> str:
        text = f"{self.subject}.{self.name} = {self.value}"
        if self.pinned:
            text += " (pinned)"
        if self.runner_up is not None:
            text += f"; next best {self.runner_up}"
        return text + (f"; because {self.binding}" if self.binding else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Stages that run as one unit of dispatch in one worker.

    kind: `host` (in a stage worker: sources, maps, episodes, credit, ...), `apply` (a module's
    forward, and its backward when trained), `train` (join, pack, loss, backward).
    inputs, outputs: streams that cross the task's border. group: worker group that runs it.
    versioned: it must run at the step's own version (episodes, apply, train); others may run
    ahead. gated: it comes after membership is decided; False for a source and its filters when the
    graph has filters.
    """

    name: str
    kind: str
    stages: tuple[str, ...]
    group: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versioned: bool = False
    gated: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How one replica of a module is laid out over devices: dp x tp x pp x cp ranks.

    recompute: activations are computed again for the backward pass instead of kept.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    recompute: bool = False

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp * self.cp


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one process lives: node by name, device index on it, or -1 for the host's cores."""

    node: str
    device: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Processes that do one job.

    kind: `stage` (user functions), `engine` (rollout of an agent's module), `gang` (ranks that
    hold a module's weights, train it or run its forward).
    name: `host`, `<agent>.engine`, `<module>.gang`; processes are `<name>-<index>`.
    module, agents: whose weights it holds, whose calls it answers. replicas: processes, one a rank;
    engines are `replicas / layout.ranks` instances.
    shares: group whose devices it uses in turn, "" when they are its own; turn: its place in that
    order. residency: of its weights and optimizer between turns: `resident` on the device,
    `offloaded` to the host's memory, `destroyed` with its processes and made again from there.
    slots: rows an engine decodes at once. max_length: tokens of a row, prompt included.
    in_flight: units (gang), samples (stage) a process may hold at once.
    """

    name: str
    kind: str
    module: str = ""
    agents: tuple[str, ...] = ()
    replicas: int = 1
    layout: Layout = Layout()
    places: tuple[Place, ...] = ()
    slots: int = 0
    max_length: int = 0
    in_flight: int = 2
    shares: str = ""
    turn: int = 0
    residency: str = "resident"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that a group may move to at run time. seconds: of a step's demand; memory_bytes: of
    one device; replicas: processes."""

    layout: Layout
    replicas: int
    seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Within which the orchestrator may move a group without a new plan.

    least, most: processes. alternatives: by devices; the present one is not among them.
    move_seconds: what one moved process costs: its weights' way, and the calls it must drain.
    """

    group: str
    least: int
    most: int
    alternatives: tuple[Alternative, ...] = ()
    move_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """When engines move between agents. by: what is weighed. excess: an agent's share of the
    backlog over its share of the engines from which one moves to it; gain: seconds saved a second
    of moving; settle_seconds: between two moves of one engine; at_once: engines a move.
    """

    by: str = "backlog-tokens"
    excess: float = 1.5
    gain: float = 2.0
    settle_seconds: float = 10.0
    at_once: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What another number of devices would change, for `inspect`.

    kind: of device; devices: so many more (1) or fewer (-1) of them. step_seconds: predicted then;
    0 where no plan is possible, and `refusal` says why. changes: by group that would differ, its
    processes and layout before and after, in words.
    """

    kind: str
    devices: int
    step_seconds: float = 0.0
    changes: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A stream's way between workers, with its budget. kind: see `Stream.kind`."""

    stream: str
    transport: str  # in-process, shared-memory, zeromq, device-ipc, device-collective
    capacity_bytes: int
    capacity_records: int
    kind: str = "data"
    partition: str = "by-unit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Plan data that fixes what overlaps.

    batch: source samples a step. chunk: samples a chunk, the unit of exact mode. unit: samples a
    unit otherwise. updates: optimizer updates a step. ahead: steps that unversioned tasks may run
    ahead. mode: `pipeline` (train while rolling out), `barrier` (phases alternate).
    """

    batch: int
    chunk: int
    unit: int = 1
    updates: int = 1
    ahead: int = 1
    mode: str = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """A work on the critical path. work: a task, `<task>/<agent>` for calls, `<task>.backward`.

    group: who does it. seconds: by which the step ends later because of it.
    """

    work: str
    group: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Rates and times that the passes expect, for `inspect`; seconds of one step by group.

    measured: groups whose seconds rest on a profile. times: seconds of a token, a micro-batch, a
    decode step and so on, by `group.quantity`, as the simulator takes them. bound_seconds: no plan
    of this graph on this cluster has a shorter step, as far as the solver proved; 0 when none was
    asked. path: works that wait for one another and add up to the step; empty where crowded cores
    or a busy process set it.
    memory_terms: by group, what a process's bytes are: weights, gradients, KV cache, ...
    """

    step_seconds: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)  # records a source sample, by stream
    measured: tuple[str, ...] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    bound_seconds: float = 0.0
    path: tuple[Leg, ...] = ()
    memory_terms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the runtime executes. `graph` is the flow graph after all passes."""

    graph: Graph
    cluster: Cluster
    tasks: tuple[Task, ...] = ()
    groups: tuple[WorkerGroup, ...] = ()
    channels: tuple[Channel, ...] = ()
    schedule: Schedule
    pool_bytes: int = 1 << 28  # bytes each worker may hold in its pool segment
    prediction: Prediction = Prediction()
    decisions: tuple[Decision, ...] = ()
    rooms: tuple[Room, ...] = ()
    balance: Balance = Balance()
    neighbours: tuple[Neighbour, ...] = ()

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)

    def group(self, name: str) -> WorkerGroup:
        return next(group for group in self.groups if group.name == name)

    def producer(self, stream: str) -> Task:
        """The task that hands this stream over its border."""
        return next(task for task in self.tasks if stream in task.outputs)
