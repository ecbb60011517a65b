"""All that the orchestrator knows. Only metadata: payloads stay in the workers' pools."""

import enum
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flowgraph.ir.plan import Plan, Task, WorkerGroup
from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.messages import BlockName, PlainCall, PlainHandle
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.quarantine import Quarantine
from flowgraph.runtime.orchestrator.records import Channel, Pair, Record
from flowgraph.runtime.orchestrator.roster import Roster
from flowgraph.runtime.orchestrator.routes import Route, Routes, routes_of
from flowgraph.runtime.orchestrator.suspects import Suspect, Suspects
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
    UPDATING = "updating"  # ranks have their orders
    SYNCING = "syncing"  # all ranks have moved, engines load
    FINISHED = "finished"


class ModulePhase(enum.Enum):
    """Where a trained module is between two versions."""

    CURRENT = "current"
    UPDATING = "updating"
    UPDATED = "updated"  # it has moved, others of its step have not


class WorkerPhase(enum.Enum):
    """Where a worker's present process is. Allowed changes are in `transitions.py`."""

    STARTING = "starting"
    LOADING = "loading"  # a replaced engine that has not the present weights yet
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    LOST = "lost"


READY, STOPPED = WorkerPhase.READY, WorkerPhase.STOPPED
"""Asked for with every event: a name is found faster than an enum's member."""


class RunPhase(enum.Enum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class Held(NamedTuple):
    """A block that an item of the task read from the stream, and that is looked at after it."""

    handle: PlainHandle
    task: str
    stream: str


class Want(NamedTuple):
    """A block for which there is no room in its writer's pool."""

    stream: str
    nbytes: int


@dataclass(slots=True)
class Worker:
    """One process. inflight: samples (stage), items (gang), calls (engine) it holds.

    served: units handed to it so far, so that equally loaded workers take turns.
    incarnation: how often its process was replaced. version: of the weights that it has.
    token: names the present process, as `origin` of calls and owner of blocks.
    fetching: items that wait for blocks of other nodes, which `porters` have, as it says.
    trial: the suspect that it has, and nothing else.
    frees: `Free` messages that its process was sent. held: see `held.py`; recalled: it was asked
    to look for what it need not hold, and has not answered.
    """

    name: str
    index: int
    group: WorkerGroup
    phase: WorkerPhase = WorkerPhase.STARTING
    incarnation: int = 0
    version: int = 0
    inflight: int = 0
    served: int = 0
    items: set[int] = field(default_factory=set)
    busy_s: float = 0.0
    busy_mark: float = 0.0
    asked: dict[str, int] = field(default_factory=dict)  # by agent, its process's latest call
    trial: Suspect | None = None
    fetching: frozenset[int] = frozenset()
    porters: tuple[str, ...] = ()
    frees: int = 0
    held: dict[BlockName, Held] = field(default_factory=dict)
    recalled: bool = False
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.token = token_of(self.name, self.incarnation)

    def replace(self) -> None:
        """The next process takes its name."""
        self.incarnation += 1
        self.token = token_of(self.name, self.incarnation)
        self.fetching, self.porters = frozenset(), ()
        self.frees = 0

    @property
    def stopped(self) -> bool:
        return self.phase is STOPPED

    @property
    def room(self) -> int:
        """Samples (stage workers) or items (gangs) that it may still take; one when idle.

        None of who is not there, or has a suspect.
        """
        if self.phase is not READY or self.trial is not None:
            return 0
        left = self.group.in_flight - self.inflight
        return left if left > 0 or self.items else 1


@dataclass(slots=True)
class Item:
    """Work handed to a worker: a task on some units of a step.

    weight: samples in it. awaiting: units whose gradient has not come.
    samples: of an item before membership, the positions that it looks at; of one that only tries
    a suspect's sample, that sample.
    """

    id: int
    order: int  # of its step
    task: str
    units: tuple[int, ...]
    worker: str
    route: Route
    weight: int
    reads: tuple[PlainHandle, ...] = ()
    awaiting: set[int] | None = None
    samples: tuple[int, ...] = ()


class OpenCall(NamedTuple):
    """A generate call without an answer. engine: who has it; empty while none is ready."""

    engine: str
    agent: str
    call: PlainCall


class Published(NamedTuple):
    """Weights that engines have or load, kept for an engine that is replaced."""

    version: int
    weights: PlainHandle
    digest: str


class TaskChannels(NamedTuple):
    """Of one task in one part: within it, those it reads, those it fills."""

    inner: tuple[Channel, ...]
    reads: tuple[Channel, ...]
    hands: tuple[Channel, ...]


@dataclass(slots=True)
class TaskProgress:
    """How far one task is in a step: columns by unit, and counts that spare looking through them.

    status: a UnitStatus each. missing: inputs that have not come. Ready are the units of the heap
    `ready`, and behind them all from `fresh` on: those of a task without inputs, which was never
    given them. By part: channels; done; begun: units that are not WAITING; ready_units;
    ready_tokens. sizes: tokens of each unit, for a task that fills micro-batches.
    """

    status: bytearray
    missing: bytearray
    channels: list[TaskChannels]
    done: list[int]
    begun: list[int]
    ready: list[int]
    fresh: int
    ready_units: list[int]
    ready_tokens: list[int]
    sizes: "array[int] | None"

    @property
    def all_done(self) -> bool:
        return sum(self.done) == len(self.status)


@dataclass(slots=True)
class Step:
    """One step, training (variant 0) or evaluation.

    tasks: by task name. weights, sizes, blocks and unread are by task or stream, then by unit: a
    block is known from when it is written until all of its `unread` tasks are done with it.
    part_of: by unit, the optimizer update that it belongs to.
    owners: by module, which rank holds which unit's gradient: exact mode adds in that order.
    awaited: by task and unit, the item whose activations wait for a gradient.
    left_of: by part, pairs of task and unit that are not done, of tasks that are no host's.
    """

    order: int
    variant: int
    step: int
    samples: Sequence[int] = ()
    units: Sequence[tuple[int, ...]] = ()
    parts: tuple[range, ...] = ()
    part: int = 0
    phase: Phase = Phase.AHEAD
    formed: bool = False
    began: float = 0.0
    tasks: dict[str, TaskProgress] = field(default_factory=dict)
    part_of: "array[int]" = field(default_factory=lambda: array("I"))
    left_of: list[int] = field(default_factory=list)
    blocks: dict[str, list[tuple[PlainHandle, ...]]] = field(default_factory=dict)
    unread: dict[str, bytearray] = field(default_factory=dict)
    sizes: dict[str, "array[int]"] = field(default_factory=dict)
    weights: dict[str, "array[float]"] = field(default_factory=dict)
    owners: dict[str, dict[int, int]] = field(default_factory=dict)
    awaited: dict[str, dict[int, Item]] = field(default_factory=dict)
    gradients: dict[str, dict[int, PlainHandle]] = field(default_factory=dict)
    backward: set[int] = field(default_factory=set)  # items whose backward is not done
    waiting_for: set[str] = field(default_factory=set)  # workers of the present barrier
    metrics: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    channels: dict[Pair, list[Channel]] = field(default_factory=dict)  # by part
    tokens: int = 0

    @property
    def records(self) -> dict[Pair, Record]:
        """Conservation so far, over all parts."""
        found: dict[Pair, Record] = {}
        for pair, parts in self.channels.items():
            total = found[pair] = Record()
            for channel in parts:
                total.add(channel)
        return found


@dataclass(slots=True)
class State:
    """The orchestrator. `steps` run in order; later ones only ahead.

    living: worker by the token of its present process. retired: by the token of a lost process,
    blocks in its segment that somebody will read yet. calls: by (token of who asked, its number).
    queued: by engine group, calls that wait for an engine to be ready.
    published: by module, the weights that its engines have. loading: by engine, what it was told
    to load and has not. restarts: made so far, of both kinds, by all attempts at the run.
    routes: by variant. rosters: by group, of those that are handed items.
    full: by worker, what it has no room for. able: who was last known to have something to do.
    looked: who was asked in the present standstill for what it need not hold, in vain.
    stale: work of any kind may have become possible; done: the item whose end is all that has
    happened since the last look.
    """

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
    records: dict[Pair, Record] = field(default_factory=dict)
    history: list[dict[str, dict[str, float]]] = field(default_factory=list)
    evaluations: dict[str, dict[str, float]] = field(default_factory=dict)
    updates: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    initial_digests: dict[str, str] = field(default_factory=dict)
    modules: dict[str, ModulePhase] = field(default_factory=dict)  # trained ones
    published: dict[str, Published] = field(default_factory=dict)
    loading: dict[str, deque[Published]] = field(default_factory=dict)
    living: dict[str, str] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    calls: dict[tuple[str, int], OpenCall] = field(default_factory=dict)
    queued: dict[str, list[tuple[str, str, tuple[PlainCall, ...]]]] = field(default_factory=dict)
    call_record: Record = field(default_factory=Record)
    gate_again: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # by position
    restarts: int = 0
    suspects: Suspects = field(default_factory=Suspects)
    quarantine: Quarantine = field(init=False)
    full: dict[str, Want] = field(default_factory=dict)
    able: str = ""
    looked: set[str] = field(default_factory=set)
    stale: bool = True
    done: Item | None = None
    gate: Task | None = field(init=False)  # of the source and its filters, when there are filters
    groups: dict[str, list[Worker]] = field(init=False)
    rosters: dict[str, Roster] = field(init=False)
    routes: list[Routes] = field(init=False)
    gate_from: int = 0  # positions before it were trained before this attempt
    clock: float = 0.0  # end of the last training step
    gate_recorded: int = 0  # source positions whose verdicts have been counted
    gate_dropped: int = 0  # source positions in a row of which none passed
    checkpoint_at: float = 0.0  # when the last checkpoint was asked for
    resumed_at: int = 0  # the step that this process of the run began with
    saving: dict[int, set[str]] = field(default_factory=dict)  # by step, workers not done saving
    snapshots: dict[int, bytes] = field(default_factory=dict)  # by step, until all have saved

    def __post_init__(self) -> None:
        self.quarantine = Quarantine(self.plan.graph)
        self.gate = self.topology.gate()
        self.groups = {group.name: [] for group in self.plan.groups}
        for worker in self.workers.values():
            self.groups[worker.group.name].append(worker)
        handed = [group.name for group in self.plan.groups if group.kind != "engine"]
        self.rosters = {name: Roster(self.groups[name]) for name in handed}
        variants = range(1 + len(self.topology.variants()))
        self.routes = [routes_of(self.topology, v, exact=self.exact) for v in variants]

    @property
    def exact(self) -> bool:
        return self.options.exact

    def in_group(self, group: str) -> list[Worker]:
        return self.groups[group]


def new_state(plan: Plan, options: RunOptions, quarantined: Iterable[int] = ()) -> State:
    """The state before anything has happened. quarantined: samples that are put aside."""
    workers: dict[str, Worker] = {}
    for group in plan.groups:
        for index in range(group.replicas):
            name = f"{group.name}-{index}"
            workers[name] = Worker(name=name, index=index, group=group)
    steps = plan.graph.steps if options.steps is None else options.steps
    topology = Topology(plan)
    state = State(plan=plan, options=options, total_steps=steps, topology=topology, workers=workers)
    state.quarantine = Quarantine(plan.graph, quarantined)
    state.updates = dict.fromkeys(topology.trained_modules(), 0)
    state.modules = dict.fromkeys(topology.trained_modules(), ModulePhase.CURRENT)
    state.living = {worker.token: worker.name for worker in workers.values()}
    return state
