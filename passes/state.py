"""What the passes hand to one another: the graph, and what has been decided of it so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Channel, Decision, Layout, Room, Schedule, Task, WorkerGroup
from flowgraph.passes.costs import Costs
from flowgraph.passes.pins import Pins


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process of a part takes. `seconds`: of a step's whole demand on one process.

    part: a group's name (`<agent>.engine`, `<module>.gang`). memory_bytes: held by one process.
    terms: what the memory is made of, for messages. measured: False for an estimate.
    """

    part: str
    seconds: float
    memory_bytes: int
    terms: Mapping[str, int] = field(default_factory=dict)
    measured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """A part under a layout on a kind of device.

    replicas: instances of an engine, 1 of a gang. seconds: of a step's whole demand, shared by all
    of them. memory_bytes, terms: of one device. micro_batch: tokens at once, 0 for engines.
    """

    layout: Layout
    kind: str
    replicas: int
    seconds: float
    memory_bytes: int
    terms: Mapping[str, int] = field(default_factory=dict)
    micro_batch: int = 0

    @property
    def devices(self) -> int:
        return self.replicas * self.layout.ranks


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which gangs take turns. members: by the shared group's name, the gangs in it.

    laid: by shared group and width, each member's layout. seconds: of the members' turns together.
    """

    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    laid: Mapping[str, Mapping[int, Mapping[str, LaidOut]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Immutable; a pass returns a new one.

    rates: records a source sample, by stream. tokens: expected tokens a record, by stream, or what
    a model reads instead. lengths: expected entries a record in ragged dims, by stream.
    spreads: relative standard deviation of a record's tokens, by stream, where there is one.
    measured: numbers that replace estimates. costs, options: by group name, on one device and under
    each layout (on accelerators only). counts: processes by group name. layouts: the chosen option
    by group name, of those in `options`. bound_seconds: of a step, that
    no layouts beat. sharing: gangs that take turns on devices.
    groups, tasks, channels, schedule: parts of the plan, each filled by one pass.
    """

    graph: Graph
    cluster: Cluster
    pins: Pins
    rates: Mapping[str, Fraction] = field(default_factory=dict)
    tokens: Mapping[str, float] = field(default_factory=dict)
    lengths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    measured: Costs = field(default_factory=Costs)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    options: Mapping[str, tuple[LaidOut, ...]] = field(default_factory=dict)
    layouts: Mapping[str, LaidOut] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    bound_seconds: float = 0.0
    sharing: Sharing = field(default_factory=Sharing)
    groups: tuple[WorkerGroup, ...] = ()
    rooms: tuple[Room, ...] = ()
    tasks: tuple[Task, ...] = ()
    channels: tuple[Channel, ...] = ()
    schedule: Schedule | None = None
    pool_bytes: int = 0
    decisions: tuple[Decision, ...] = ()


class Pass(Protocol):
    """A frozen dataclass whose fields are the pass's options."""

    @property
    def name(self) -> str: ...

    def apply(self, state: State) -> State: ...


T = TypeVar("T")


@dataclass(slots=True)
class Choices:
    """Collects the decisions of one pass; a pinned value takes the place of the chosen one."""

    by: str
    pins: Pins
    made: list[Decision] = field(default_factory=list)

    def choose(self, subject: str, name: str, value: T, because: str, runner_up: Any = None) -> T:
        """The pin's value if there is one, else `value`; records which and why."""
        pinned = self.pins.get(subject, name)
        if pinned is not None:
            self.made.append(
                Decision(
                    by=self.by,
                    subject=subject,
                    name=name,
                    value=pinned,
                    runner_up=None if pinned == value else value,
                    pinned=True,
                )
            )
            chosen: T = pinned
            return chosen
        self.made.append(
            Decision(
                by=self.by,
                subject=subject,
                name=name,
                value=value,
                runner_up=runner_up,
                binding=because,
            )
        )
        return value

    def onto(self, state: State, **changes: Any) -> State:
        """The state with `changes` and this pass's decisions."""
        return replace(state, decisions=(*state.decisions, *self.made), **changes)
