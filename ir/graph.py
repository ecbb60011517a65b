"""The flow dialect: stages joined by typed streams, as plain data.

Nothing here holds a Python object of the user's: functions are named, parameters are plain data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flowgraph.ir.location import UNKNOWN, Location
from flowgraph.ir.types import RecordType

Data = None | bool | int | float | str | tuple["Data", ...] | Mapping[str, "Data"]
"""Plain data. Lists are stored as tuples; mappings have str keys and print in sorted order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRef:
    """The user's function (or one of ours) by name; imported only by workers of a run.

    `path` is relative to the graph's `root` and imported from there as `module`; it is empty for
    functions of installed packages. `digest` is a content hash (xxh3-128, hex) of the file.
    """

    module: str
    qualname: str
    path: str = ""
    digest: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.module}:{self.qualname}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage. `attributes` holds what `ops.OPS[op]` lists, as plain data.

    inputs, outputs: names of streams. function: the user's function, the loss of a `train`, the
    metric of an `evaluate`. modules, agents: what it uses. devices: wanted by each of its workers.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    function: FunctionRef | None = None
    modules: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    devices: int = 0
    at: Location = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A typed edge: made by one stage, read by any number.

    kind: `data`; `gradient` (consumer back to encoder) and `weights` (trainer to engines) are made
    explicit by lower-edges. delay: versions between what is made and what is read (weights: 1).
    """

    name: str
    producer: str
    type: RecordType
    kind: str = "data"
    delay: int = 0
    at: Location = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Weights with a version.

    trainable: True, False, or name patterns (fnmatch) of the trained parameters.
    description: plain data for the cost model (kind, layers, width, parameters, ...).
    starts_as: module whose initial weights it has, "" for its own.
    """

    name: str
    factory: FunctionRef
    trainable: bool | tuple[str, ...] = True
    dtype: str = "float32"
    description: Mapping[str, Any] = field(default_factory=dict)
    starts_as: str = ""
    at: Location = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A module's use in rollout.

    engine: name of the engine kind (`torch`). sampling: temperature, max_tokens, stop tokens,
    max_length. expect: distributions of calls, prompt and response tokens a trajectory.
    after: agents whose calls come before this one's. tokenizer: plain-data reference or None.
    """

    name: str
    module: str
    engine: str = "torch"
    sampling: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    tokenizer: FunctionRef | None = None
    at: Location = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole training as data. Tuples are in declaration order, which is topological.

    steps: how many steps a run takes unless told. seed: the run's seed. root: folder under which
    the user's files were found (absolute; not part of the content hash). settings: the values
    `build` was called with. cluster: a default cluster file, or "". pins: decisions fixed in the
    graph, `{"solver.engines": 2}`.
    """

    name: str
    modules: tuple[Module, ...] = ()
    agents: tuple[Agent, ...] = ()
    stages: tuple[Stage, ...] = ()
    streams: tuple[Stream, ...] = ()
    steps: int = 100
    seed: int = 0
    root: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = ""
    pins: Mapping[str, Any] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """Raises KeyError when there is none of that name."""
        return _named(self.stages, name)

    def stream(self, name: str) -> Stream:
        return _named(self.streams, name)

    def module(self, name: str) -> Module:
        return _named(self.modules, name)

    def agent(self, name: str) -> Agent:
        return _named(self.agents, name)

    def consumers(self, stream: str) -> tuple[Stage, ...]:
        """Stages that read the stream, in declaration order."""
        return tuple(stage for stage in self.stages if stream in stage.inputs)

    def by_op(self, op: str) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.op == op)


T = TypeVar("T", Stage, Stream, Module, Agent)


def _named(things: tuple[T, ...], name: str) -> T:
    for thing in things:
        if thing.name == name:
            return thing
    raise KeyError(name)
