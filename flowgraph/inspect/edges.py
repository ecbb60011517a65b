"""What travels between tasks, within which budget, and on which version's samples is trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flowgraph.inspect.parts import Decisions
from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.index import Index, index
from flowgraph.ir.plan import Channel, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A channel. makers, readers: tasks, or groups for weights. why: of its size and transport."""

    stream: str
    kind: str
    makers: tuple[str, ...]
    readers: tuple[str, ...]
    transport: str
    capacity_bytes: int
    capacity_records: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEdge:
    """A train stage, a module that it updates, and how old the weights behind its samples may be.

    made_by: stages before it that run with the module's weights; empty where no sample depends on
    them. behind: updates that these weights may lag; 0: a step trains what its own version made.
    """

    train: str
    module: str
    made_by: tuple[str, ...]
    behind: int
    why: str


def ways_of(plan: Plan, decisions: Decisions) -> tuple[Way, ...]:
    makers = {stream: task.name for task in plan.tasks for stream in task.outputs}
    readers: dict[str, list[str]] = {}
    for task in plan.tasks:
        for stream in task.inputs:
            readers.setdefault(stream, []).append(task.name)
    holder = {stage: task.name for task in plan.tasks for stage in task.stages}
    producers = {stream.name: stream.producer for stream in plan.graph.streams}
    found = []
    ends: tuple[tuple[str, ...], tuple[str, ...]]
    for channel in plan.channels:
        name = channel.stream
        if channel.kind == "data":
            ends = (makers.get(name, ""),), tuple(readers.get(name, ()))
        elif channel.kind == "gradient":
            made = holder.get(producers.get(name, ""), "")
            ends = (made,), (makers.get(name.removesuffix(".gradient"), ""),)
        else:
            ends = _weight_ends(plan, name.removesuffix(".weights"))
        found.append(_way(channel, ends, decisions))
    return tuple(found)


def _way(
    channel: Channel, ends: tuple[tuple[str, ...], tuple[str, ...]], decisions: Decisions
) -> Way:
    said = [
        decisions[channel.stream, name].binding
        for name in ("capacity", "transport")
        if (channel.stream, name) in decisions
    ]
    return Way(
        stream=channel.stream,
        kind=channel.kind,
        makers=tuple(filter(None, ends[0])),
        readers=tuple(filter(None, ends[1])),
        transport=channel.transport,
        capacity_bytes=channel.capacity_bytes,
        capacity_records=channel.capacity_records,
        why="; ".join(said),
    )


def _weight_ends(plan: Plan, module: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    own = [group for group in plan.groups if group.module == module]
    return (
        tuple(group.name for group in own if group.kind == "gang"),
        tuple(group.name for group in own if group.kind == "engine"),
    )


def training_edges(plan: Plan, decisions: Decisions) -> tuple[TrainingEdge, ...]:
    """One for each train stage and module that it trains."""
    return tuple(_training_edges(index(plan.graph), decisions))


def _training_edges(at: Index, decisions: Decisions) -> Iterator[TrainingEdge]:
    fixed = {module.name for module in at.graph.modules if module.trainable is False}
    users = _users(at.graph)
    for train in at.graph.by_op("train"):
        before = {stage.name for stage in at.ancestors(train)}
        for module in train.modules:
            if module in fixed:
                continue
            decision = decisions.get((module, "staleness"))
            weights = at.streams.get(f"{module}.weights")
            yield TrainingEdge(
                train=train.name,
                module=module,
                made_by=tuple(stage for stage in users.get(module, ()) if stage in before),
                behind=weights.delay - 1 if weights else 0,
                why=decision.binding if decision else "",
            )


def _users(graph: Graph) -> Mapping[str, list[str]]:
    """Stages that run with each module's weights to make records."""
    played = {agent.name: agent.module for agent in graph.agents}
    found: dict[str, list[str]] = {}
    for stage in graph.stages:
        for module in dict.fromkeys(_run_by(stage, played)):
            found.setdefault(module, []).append(stage.name)
    return found


def _run_by(stage: Stage, played: Mapping[str, str]) -> list[str]:
    if stage.op == "episodes":
        return [played[name] for name in stage.agents]
    return list(stage.modules[:1]) if stage.op == "apply" else []
