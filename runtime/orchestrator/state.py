"""All that the orchestrator knows. Only metadata: payloads stay in the workers' pools."""

import enum
from collections import deque
from dataclasses import dataclass, field

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan, WorkerGroup
from flowgraph.runtime.messages import PlainHandle
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.topology import Topology


class UnitStatus(enum.IntEnum):
    """Where a unit of a step is in one task."""

    WAITING = 0
    RUNNING = 1
    DONE = 2


class Phase(enum.Enum):
    """Where a step is. A training step that has parts goes round WORKING → UPDATING."""

    AHEAD = "ahead"  # only unversioned tasks may run
    WORKING = "working"
    UPDATING = "updating"
    SYNCING = "syncing"
    FINISHED = "finished"


class RunPhase(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(slots=True)
class Worker:
    """One process. inflight: samples (stage), items (gang), calls (engine) it holds.

    served: units handed to it so far, so that equally loaded workers take turns.
    """

    name: str
    index: int
    group: WorkerGroup
    ready: bool = False
    stopped: bool = False
    version: int = 0
    inflight: int = 0
    served: int = 0
    items: set[int] = field(default_factory=set)
    busy_s: float = 0.0
    busy_mark: float = 0.0


@dataclass(slots=True)
class Item:
    """Work handed to a worker: a task on some units of a step."""

    id: int
    order: int  # of its step
    task: str
    units: tuple[int, ...]
    worker: str
    reads: tuple[PlainHandle, ...] = ()
    awaiting: set[int] = field(default_factory=set)  # units whose gradient has not come


@dataclass(slots=True)
class TaskProgress:
    """How far one task is in a step. Every unit is in one state; `ready` is sorted.

    missing: inputs that have not come, by unit. done: units finished, by part.
    """

    status: list[UnitStatus]
    missing: list[int]
    done: list[int]
    ready: list[int] = field(default_factory=list)

    @property
    def all_done(self) -> bool:
        return sum(self.done) == len(self.status)


@dataclass(slots=True)
class Step:
    """One step, training (variant 0) or evaluation.

    tasks: by task name. weights, sizes and blocks are by task or stream, then by unit.
    part_of: by unit, the optimizer update that it belongs to.
    owners: by module, which rank holds which unit's gradient.
    """

    order: int
    variant: int
    step: int
    samples: tuple[int, ...] = ()
    units: tuple[tuple[int, ...], ...] = ()
    parts: tuple[range, ...] = ()
    part: int = 0
    phase: Phase = Phase.AHEAD
    formed: bool = False
    began: float = 0.0
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    part_of: list[int] = field(default_factory=list)
    blocks: dict[str, list[tuple[PlainHandle, ...]]] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    weights: dict[str, list[float]] = field(default_factory=dict)
    owners: dict[str, dict[int, int]] = field(default_factory=dict)
    gradients: dict[str, dict[int, PlainHandle]] = field(default_factory=dict)
    backward: set[int] = field(default_factory=set)  # items whose backward is not done
    waiting_for: set[str] = field(default_factory=set)  # workers of the present barrier
    metrics: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    records: dict[tuple[str, str], "Record"] = field(default_factory=dict)
    tokens: int = 0

    def record(self, stream: str, consumer: str) -> "Record":
        return self.records.setdefault((stream, consumer), Record())


@dataclass(slots=True)
class Record:
    """Conservation of one (stream, consumer): admitted = consumed + dropped + in_flight."""

    admitted: int = 0
    consumed: int = 0
    dropped: int = 0

    @property
    def in_flight(self) -> int:
        return self.admitted - self.consumed - self.dropped


@dataclass(slots=True)
class State:
    """The orchestrator. `pending` steps run in order; later ones only ahead."""

    plan: Plan
    options: RunOptions
    total_steps: int
    topology: Topology
    workers: dict[str, Worker]
    phase: RunPhase = RunPhase.STARTING
    version: int = 0  # optimizer updates taken by every trained module
    steps: deque[Step] = field(default_factory=deque)
    next_order: int = 0
    next_step: int = 0  # the training step that is queued next
    items: dict[int, Item] = field(default_factory=dict)
    next_item: int = 0
    references: dict[tuple[str, int, int], int] = field(default_factory=dict)
    source_sizes: dict[str, int] = field(default_factory=dict)
    gate_cursor: int = 0  # next source position to hand to the filters
    gate_kept: dict[int, tuple[tuple[int, ...], dict[str, PlainHandle]]] = field(
        default_factory=dict
    )
    gate_next: int = 0  # first position whose verdict has not been taken into `admitted`
    gate_admitted: deque[int] = field(default_factory=deque)
    gate_blocks: dict[int, dict[str, PlainHandle]] = field(default_factory=dict)
    gate_left: dict[tuple[str, int, int], int] = field(default_factory=dict)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    history: list[dict[str, dict[str, float]]] = field(default_factory=list)
    evaluations: dict[str, dict[str, float]] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    initial_digests: dict[str, str] = field(default_factory=dict)
    published: dict[str, PlainHandle] = field(default_factory=dict)  # by module, being loaded
    clock: float = 0.0  # end of the last training step
    gate_recorded: int = 0  # source positions whose verdicts have been counted
    checkpoint_at: float = 0.0  # when the last checkpoint was asked for
    resumed_at: int = 0  # the step that this process of the run began with
    saving: dict[int, set[str]] = field(default_factory=dict)  # by step, workers not done saving
    snapshots: dict[int, bytes] = field(default_factory=dict)  # by step, until all have saved

    @property
    def exact(self) -> bool:
        return self.options.exact

    def in_group(self, group: str) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.group.name == group]

    def finish_records(self, step: Step) -> None:
        """Add a finished step's conservation to the run's. Raises InternalError for a lost one."""
        for key, record in step.records.items():
            if record.in_flight:
                raise InternalError(f"{' → '.join(key)} lost {record.in_flight} samples")
            total = self.records.setdefault(key, Record())
            total.admitted += record.admitted
            total.consumed += record.consumed
            total.dropped += record.dropped


def new_state(plan: Plan, options: RunOptions) -> State:
    """The state before anything has happened."""
    workers: dict[str, Worker] = {}
    for group in plan.groups:
        for index in range(group.replicas):
            name = f"{group.name}-{index}"
            workers[name] = Worker(name=name, index=index, group=group)
    steps = plan.graph.steps if options.steps is None else options.steps
    topology = Topology(plan)
    state = State(plan=plan, options=options, total_steps=steps, topology=topology, workers=workers)
    state.updates = dict.fromkeys(topology.trained_modules(), 0)
    return state
