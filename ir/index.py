"""Lookups over one graph, each in constant time, and the order in which data flows through it."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowgraph.ir.graph import Agent, Graph, Module, Stage, Stream
from flowgraph.ir.ops import OPS, REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A graph by name. When a name is declared twice the first one is kept.

    consumers: stages that read a data stream, in declaration order; every data stream has an entry.
    """

    graph: Graph
    stages: Mapping[str, Stage]
    streams: Mapping[str, Stream]
    modules: Mapping[str, Module]
    agents: Mapping[str, Agent]
    consumers: Mapping[str, tuple[Stage, ...]]

    def producer(self, stream: str) -> Stage | None:
        """The stage that makes the stream; None when the stream or its stage is not declared."""
        found = self.streams.get(stream)
        return self.stages.get(found.producer) if found else None

    def parents(self, stage: Stage) -> tuple[Stage, ...]:
        """Producers of the stage's inputs, without the ones that are not declared."""
        made = (self.producer(stream) for stream in stage.inputs)
        return tuple(parent for parent in made if parent is not None)

    def children(self, stage: Stage) -> tuple[Stage, ...]:
        """Readers of the stage's outputs, in declaration order, each once."""
        readers = (reader for name in stage.outputs for reader in self.consumers.get(name, ()))
        return tuple({reader.name: reader for reader in readers}.values())

    def ancestors(self, stage: Stage) -> tuple[Stage, ...]:
        """All stages whose data reaches this one, nearest first, without itself."""
        found: dict[str, Stage] = {}
        waiting = deque(self.parents(stage))
        while waiting:
            parent = waiting.popleft()
            if parent.name not in found and parent.name != stage.name:
                found[parent.name] = parent
                waiting.extend(self.parents(parent))
        return tuple(found.values())


def index(graph: Graph) -> Index:
    """Never raises: a graph that is not legal is indexed as far as its names go."""
    readers: dict[str, list[Stage]] = {s.name: [] for s in graph.streams if s.kind == "data"}
    for stage in graph.stages:
        for name in dict.fromkeys(stage.inputs):
            readers.setdefault(name, []).append(stage)
    return Index(
        graph=graph,
        stages={stage.name: stage for stage in reversed(graph.stages)},
        streams={stream.name: stream for stream in reversed(graph.streams)},
        modules={module.name: module for module in reversed(graph.modules)},
        agents={agent.name: agent for agent in reversed(graph.agents)},
        consumers={name: tuple(stages) for name, stages in readers.items()},
    )


def attribute(stage: Stage, name: str) -> Any:
    """The stage's value, or its operation's default. KeyError when neither says anything."""
    if name in stage.attributes:
        return stage.attributes[name]
    default = OPS[stage.op].attributes[name].default
    if default is REQUIRED:
        raise KeyError(f"stage {stage.name!r} does not give {name!r}")
    return default


def flow_order(at: Index) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """Stages such that each comes after those it reads, and those on or behind a cycle.

    Ties keep the declaration order, so that the result depends on nothing else.
    """
    missing = {stage.name: len({p.name for p in at.parents(stage)}) for stage in at.graph.stages}
    ready = deque(stage for stage in at.graph.stages if missing[stage.name] == 0)
    done: list[Stage] = []
    while ready:
        stage = ready.popleft()
        done.append(stage)
        for child in at.children(stage):
            missing[child.name] -= 1
            if missing[child.name] == 0:
                ready.append(child)
    placed = {stage.name for stage in done}
    return tuple(done), tuple(stage for stage in at.graph.stages if stage.name not in placed)


def agent_of(stage: Stage, stream: str) -> str:
    """Whose calls are the rows of an `episodes` stage's output; "" when none can be named.

    Outputs are named `<stage>.<agent>`; else the outputs stand in the order of the agents.
    """
    suffix = stream.rpartition(".")[2]
    if suffix in stage.agents:
        return suffix
    if stream in stage.outputs and len(stage.outputs) == len(stage.agents):
        return stage.agents[stage.outputs.index(stream)]
    return ""
