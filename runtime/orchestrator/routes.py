"""What follows for a task from the plan alone, found once: an event looks nothing up by search."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowgraph.ir.plan import Task
from flowgraph.runtime.orchestrator.records import Pair
from flowgraph.runtime.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Route:
    """A task in steps of one variant.

    host: a stage worker runs it. fills: its items are micro-batches, of at most `micro_batch`
    tokens, in even shares for `ranks`. trains: it adds to its module's gradient. keeps: it waits
    for the gradient of what it hands over. by_part: it runs at the weights of its unit's part.
    after: tasks whose last unit it waits for.

    outputs: streams that somebody reads; wanted: the same; owed: those, and the gradients that are
    waited for; owes: whether there are such; known: those, and gradients that it may send back, by
    stream in `applies` with the task that made what they are of.
    readers: how many tasks read a stream. feeds: tasks that read from it, and how many streams.
    inner, border, handed: pairs inside it, those it reads, and those that read its outputs.
    """

    task: Task
    host: bool
    fills: bool
    trains: bool
    keeps: bool
    by_part: bool
    after: tuple[str, ...]
    module: str
    micro_batch: int
    ranks: int
    outputs: tuple[str, ...]
    wanted: frozenset[str]
    owed: frozenset[str]
    owes: bool
    known: frozenset[str]
    applies: Mapping[str, str]
    readers: Mapping[str, int]
    feeds: tuple[tuple[str, int], ...]
    inner: tuple[Pair, ...]
    border: tuple[Pair, ...]
    handed: tuple[Pair, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """All tasks of steps of one variant, in order.

    of: by task. on: by group, what it runs. after: by task, whose next item may be possible once
    one of its own is done: what its group runs, which has room, and what reads from it.
    """

    of: Mapping[str, Route]
    on: Mapping[str, tuple[Route, ...]]
    after: Mapping[str, tuple[Route, ...]]


def routes_of(topology: Topology, variant: int, *, exact: bool) -> Routes:
    """The routes of training steps (variant 0) or of an evaluation's."""
    tasks = topology.tasks_for(variant)
    of = {task.name: _route(topology, task, variant, exact) for task in tasks}
    on: dict[str, tuple[Route, ...]] = {}
    for route in of.values():
        on[route.task.group] = (*on.get(route.task.group, ()), route)
    after = {}
    for route in of.values():
        fed = {name for name, _ in route.feeds}
        group = route.task.group
        waits = {other.task.name for other in of.values() if route.task.name in other.after}
        after[route.task.name] = tuple(
            other
            for other in of.values()
            if other.task.group == group or other.task.name in fed | waits
        )
    return Routes(of, on, after)


def _route(topology: Topology, task: Task, variant: int, exact: bool) -> Route:
    tasks = topology.tasks_for(variant)
    training = variant == 0
    train, apply = task.kind == "train", task.kind == "apply"
    trains = train and training
    outputs = topology.outputs_for(task, variant)
    gradients = {f"gradient/{stream}": stream for stream in task.inputs} if trains else {}
    held_back = topology.plan.schedule.mode == "barrier" and train
    return Route(
        task=task,
        host=task.kind == "host",
        fills=train and not exact,
        trains=trains,
        keeps=apply and training and topology.gradient_source(task) is not None,
        by_part=(apply or train) and task.versioned,
        after=tuple(t.name for t in tasks if t.kind == "host") if held_back else (),
        module=topology.module_of(task).name if train or apply else "",
        micro_batch=int(topology.train_stage(task).attributes["micro_batch"]) if train else 0,
        ranks=topology.plan.group(task.group).replicas,
        outputs=outputs,
        wanted=frozenset(outputs),
        owed=frozenset(outputs) | {g for g, s in gradients.items() if _owes(topology, task, s)},
        owes=any(_owes(topology, task, stream) for stream in gradients.values()),
        known=frozenset(outputs) | frozenset(gradients),
        applies={g: topology.plan.producer(stream).name for g, stream in gradients.items()},
        readers={s: sum(s in reader.inputs for reader in tasks) for s in task.outputs},
        feeds=tuple(
            (reader.name, sum(stream in task.outputs for stream in reader.inputs))
            for reader in tasks
            if set(reader.inputs) & set(task.outputs)
        ),
        inner=topology.inner_streams(task),
        border=topology.border_streams(task),
        handed=tuple(
            pair
            for reader in tasks
            for pair in topology.border_streams(reader)
            if pair[0] in task.outputs
        ),
    )


def _owes(topology: Topology, train: Task, stream: str) -> bool:
    """Whether who made the stream waits for its gradient from this task."""
    made_by = topology.plan.producer(stream)
    return made_by.kind == "apply" and topology.gradient_source(made_by) == train
