"""Stages fused into tasks: what one worker does in one go, without a channel in between."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, flow_order
from flowgraph.ir.plan import Task

VERSIONED = ("episodes", "apply", "train")
"""Operations that must run at the step's own version."""


@dataclass(frozen=True, slots=True)
class Part:
    """Stages of one task, in flow order, and its kind."""

    kind: str
    stages: tuple[Stage, ...]


def form_tasks(at: Index) -> tuple[Task, ...]:
    """All tasks, each after those it reads.

    Host stages that are joined by streams make one task, but for two borders: a module's forward
    (what comes before it and what comes after it are two tasks, else tasks would wait for each
    other in a circle), and membership (a source and its filters run before it is decided, the rest
    after). `join` and `pack` that only trainers read are done by each trainer.
    """
    order, _ = flow_order(at)
    rank = {stage.name: i for i, stage in enumerate(order)}
    in_trainer = _in_trainer(at, order)
    outside = [s for s in order if s.name not in in_trainer and s.op != "evaluate"]
    ungated = _ungated(at, order)
    levels = _levels(at, outside)
    host = [stage for stage in outside if stage.op not in ("apply", "train")]
    parts = [Part("host", stages) for stages in _components(at, host, levels, ungated)]
    parts += [Part("apply", (stage,)) for stage in outside if stage.op == "apply"]
    parts += [
        Part("train", _trainer(at, stage, rank, in_trainer)) for stage in at.graph.by_op("train")
    ]
    return _in_order(at, [_task(at, part, ungated) for part in parts])


def decides_membership(at: Index, stage: Stage) -> bool:
    """Whether the stage is a filter of whole samples, which the source then refills."""
    return stage.op == "filter" and at.streams[stage.inputs[0]].type.key == ("sample",)


def _ungated(at: Index, order: Iterable[Stage]) -> frozenset[str]:
    """Stages that run before membership is decided."""
    filters = [stage for stage in order if decides_membership(at, stage)]
    before = {parent.name for stage in filters for parent in at.ancestors(stage)}
    return frozenset(before | {stage.name for stage in filters})


def _in_trainer(at: Index, order: tuple[Stage, ...]) -> frozenset[str]:
    """Joins and packs all of whose readers are trainers or done by trainers."""
    inside: set[str] = set()
    for stage in reversed(order):
        readers = at.children(stage)
        if (
            stage.op in ("join", "pack")
            and readers
            and all(reader.op == "train" or reader.name in inside for reader in readers)
        ):
            inside.add(stage.name)
    return frozenset(inside)


def _trainer(
    at: Index, train: Stage, order: Mapping[str, int], inside: frozenset[str]
) -> tuple[Stage, ...]:
    """The joins and packs that feed this train stage, and itself."""
    wanted = {train.name: train}
    waiting = [train]
    while waiting:
        for parent in at.parents(waiting.pop()):
            if parent.name in inside and parent.name not in wanted:
                wanted[parent.name] = parent
                waiting.append(parent)
    return tuple(sorted(wanted.values(), key=lambda stage: order[stage.name]))


def _levels(at: Index, outside: Iterable[Stage]) -> Mapping[str, int]:
    """How many module forwards lie before each stage, at most."""
    levels: dict[str, int] = {}
    for stage in outside:
        parents = [p for p in at.parents(stage) if p.name in levels]
        levels[stage.name] = max(
            (levels[parent.name] + (parent.op == "apply") for parent in parents), default=0
        )
    return levels


def _components(
    at: Index, host: list[Stage], levels: Mapping[str, int], ungated: frozenset[str]
) -> list[tuple[Stage, ...]]:
    """Host stages joined by streams on the same side of all borders, in flow order."""

    def side(stage: Stage) -> tuple[int, bool]:
        return levels[stage.name], stage.name in ungated

    part: dict[str, str] = {stage.name: stage.name for stage in host}

    def root(name: str) -> str:
        while part[name] != name:
            part[name] = part[part[name]]
            name = part[name]
        return name

    for stage in host:
        for parent in at.parents(stage):
            if parent.name in part and side(parent) == side(stage):
                part[root(stage.name)] = root(parent.name)
    found: dict[str, list[Stage]] = {}
    for stage in host:
        found.setdefault(root(stage.name), []).append(stage)
    return [tuple(stages) for stages in found.values()]


def _task(at: Index, part: Part, ungated: frozenset[str]) -> Task:
    names = {stage.name for stage in part.stages}
    made = {stream for stage in part.stages for stream in stage.outputs}
    read = [stream for stage in part.stages for stream in stage.inputs if stream not in made]

    def leaves(stream: str) -> bool:
        readers = at.consumers.get(stream, ())
        return any(r.name not in names and r.op != "evaluate" for r in readers)

    return Task(
        name=_name(part),
        kind=part.kind,
        stages=tuple(stage.name for stage in part.stages),
        group="host" if part.kind == "host" else f"{part.stages[-1].modules[0]}.gang",
        inputs=tuple(dict.fromkeys(read)),
        outputs=tuple(s for stage in part.stages for s in stage.outputs if leaves(s))
        if part.kind != "train"
        else (),
        versioned=any(stage.op in VERSIONED for stage in part.stages),
        gated=not names <= ungated,
    )


def _name(part: Part) -> str:
    if part.kind != "host":
        return part.stages[-1].name
    games = [stage.name for stage in part.stages if stage.op == "episodes"]
    return games[0] if games else part.stages[0].name


def _in_order(at: Index, tasks: list[Task]) -> tuple[Task, ...]:
    """Each task after those it reads; ties as the graph declares their first stages."""
    rank = {stage.name: i for i, stage in enumerate(at.graph.stages)}
    waiting = sorted(tasks, key=lambda task: min(rank[name] for name in task.stages))
    made: set[str] = set()
    done: list[Task] = []
    while waiting:
        ready = next(task for task in waiting if made.issuperset(task.inputs))
        waiting.remove(ready)
        done.append(ready)
        made.update(ready.outputs)
    return tuple(done)
