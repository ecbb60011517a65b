"""The graph while it is being declared: plain data that still grows."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flowgraph.dsl.functions import import_base
from flowgraph.dsl.location import refuse, user_line
from flowgraph.ir.graph import Agent, FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.types import RecordType

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(slots=True, kw_only=True)
class Draft:
    """Declared modules, agents, stages and streams by name, each in declaration order.

    Function references have absolute paths until `finish`. Whatever a method refuses leaves the
    draft as it was.
    """

    name: str
    steps: int
    seed: int
    cluster: str
    modules: dict[str, Module] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    pins: dict[str, Any] = field(default_factory=dict)

    def claim(self, kind: str, name: str | None, otherwise: str) -> str:
        """A name for a new stage, module or agent.

        An automatic name (`otherwise`, when `name` is None) gets a number if it is taken. Raises
        GraphError at the user's line for a name that is taken or that the CLI could not type.
        """
        taken: Mapping[str, Any] = getattr(self, f"{kind}s")
        if name is None:
            return next(free for free in _numbered(otherwise) if free not in taken)
        if not _NAME.fullmatch(name):
            raise refuse(
                f"{kind} '{name}': a name is letters, digits, '-' and '_', a letter first",
                hint=f"'{re.sub('[^A-Za-z0-9_-]+', '-', name).strip('-0123456789_') or kind}'",
            )
        if name in taken:
            raise refuse(
                f"{kind} '{name}' is declared twice, first at {taken[name].at}",
                hint="give one of them another name",
            )
        return name

    def add(self, stage: Stage, *types: RecordType) -> Stage:
        """Record a stage with the types of its outputs, at the user's line."""
        for stream in stage.inputs:
            if stage.op != "train" and self.producer(stream).op == "pack":
                raise refuse(
                    f"{stage.op} '{stage.name}': packed rows ('{stream}') exist in trainers only",
                    hint="pack last, just before .train(...)",
                )
        stage = replace(stage, at=user_line())
        self.stages[stage.name] = stage
        for output, type in zip(stage.outputs, types, strict=True):
            self.streams[output] = Stream(name=output, producer=stage.name, type=type, at=stage.at)
        return stage

    def add_before(self, follower: str, stage: Stage, type: RecordType) -> None:
        """Record a one-output stage in front of another one, whose input it becomes.

        The followers up to the end of the draft keep their order; the names of streams stay.
        """
        self.add(stage, type)
        names = list(self.stages)
        names.insert(names.index(follower), names.pop())
        self.stages = {name: self.stages[name] for name in names}
        old, new = stage.inputs[0], stage.outputs[0]
        inputs = tuple(new if name == old else name for name in self.stages[follower].inputs)
        self.stages[follower] = replace(self.stages[follower], inputs=inputs)

    def producer(self, stream: str) -> Stage:
        return self.stages[self.streams[stream].producer]

    def upstream(self, stream: str) -> tuple[Stage, ...]:
        """All stages that the stream comes from, nearest first, each once."""
        found: dict[str, Stage] = {}
        waiting = [stream]
        while waiting:
            stage = self.producer(waiting.pop(0))
            if stage.name not in found:
                found[stage.name] = stage
                waiting.extend(stage.inputs)
        return tuple(found.values())

    def finish(self, *, root: str | None, settings: Mapping[str, Any]) -> Graph:
        """The graph as it stands, with paths relative to the common folder of its files.

        root: the graph file's folder, which a cluster file is named from.
        """
        folder = root
        root = _common([*self._bases(), *([root] if root else [])])
        cluster = self.cluster
        if cluster and folder:
            cluster = Path(os.path.relpath(os.path.join(folder, cluster), root)).as_posix()
        return Graph(
            name=self.name,
            modules=tuple(
                replace(m, factory=relocate(m.factory, root)) for m in self.modules.values()
            ),
            agents=tuple(
                replace(a, tokenizer=relocate(a.tokenizer, root)) if a.tokenizer else a
                for a in self.agents.values()
            ),
            stages=tuple(_relocated(stage, root) for stage in self.stages.values()),
            streams=tuple(self.streams.values()),
            steps=self.steps,
            seed=self.seed,
            root=root,
            settings=settings,
            cluster=cluster,
            pins=dict(self.pins),
        )

    def _bases(self) -> Iterable[str]:
        references = [m.factory for m in self.modules.values()]
        references += [a.tokenizer for a in self.agents.values() if a.tokenizer]
        references += [s.function for s in self.stages.values() if s.function]
        for stage in self.stages.values():
            if stage.attributes.get("source"):
                references.append(FunctionRef(**stage.attributes["source"]))
        return [import_base(ref.path, ref.module) for ref in references if ref.path]


def relocate(reference: FunctionRef, root: str) -> FunctionRef:
    """The reference with its path relative to `root`, '/' between folders."""
    if not reference.path:
        return reference
    return replace(reference, path=Path(os.path.relpath(reference.path, root)).as_posix())


def as_data(reference: FunctionRef) -> dict[str, Any]:
    """A function reference as an attribute's value."""
    return {
        "module": reference.module,
        "qualname": reference.qualname,
        "path": reference.path,
        "digest": reference.digest,
        "params": dict(reference.params),
    }


def _relocated(stage: Stage, root: str) -> Stage:
    if stage.function:
        stage = replace(stage, function=relocate(stage.function, root))
    if stage.attributes.get("source"):
        moved = as_data(relocate(FunctionRef(**stage.attributes["source"]), root))
        stage = replace(stage, attributes={**stage.attributes, "source": moved})
    return stage


def _common(folders: list[str]) -> str:
    return os.path.commonpath([os.path.abspath(f) for f in folders]) if folders else os.getcwd()


def _numbered(name: str) -> Iterable[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1
