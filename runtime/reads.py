"""Which columns of a stream its readers can read: what nobody can read is neither kept nor sent.

Follows from the plan alone. A trainer reads its rows' key, their tokens, and every field that a
loss or metric could ask for: numbers with one value a token or a row, whatever the loss declares.
Of a stream of items it reads the features. A module reads the fields it is applied to. Host stages
hand whole records to the user's functions and so read everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.plan import Plan, Task
from flowgraph.ir.types import SAMPLE, Field, RecordType

TOKENS, LOSS_MASK = "tokens", "loss_mask"
"""Fields of rows that trainers, and modules that score rows, read by name."""


def columns_read(plan: Plan, stream: str) -> tuple[str, ...]:
    """Names of the columns that some task reads, in the type's order; all when no task reads it."""
    type = plan.graph.stream(stream).type
    readers = [task for task in plan.tasks if stream in task.inputs]
    if not readers:
        return type.names
    wanted = {SAMPLE.name, *type.key}
    for task in readers:
        wanted |= set(_of_task(plan.graph, task, stream))
    return tuple(name for name in type.names if name in wanted)


def _of_task(graph: Graph, task: Task, stream: str) -> Iterable[str]:
    if task.kind == "apply":
        return _of_apply(graph, task, stream)
    if task.kind == "train":
        return _of_train(graph, task, stream)
    return graph.stream(stream).type.names


def _of_apply(graph: Graph, task: Task, stream: str) -> Iterable[str]:
    """What the module is handed, and what its records carry on."""
    stage = _stage(graph, task, "apply")
    inputs = stage.attributes.get("inputs")
    if inputs is None:
        return graph.stream(stream).type.names
    made = graph.stream(stage.outputs[0]).type.names
    return (*inputs, TOKENS, LOSS_MASK, *made)


def _of_train(graph: Graph, task: Task, stream: str) -> Iterable[str]:
    """What joining, packing and any loss could read of the stream."""
    type = graph.stream(stream).type
    samples, beside = _joined(graph, task)
    rows = graph.stream(samples).type
    tokens = rows.field(TOKENS)
    if tokens is None or len(tokens.ragged) != 1:
        return type.names
    if stream == samples or type.key == rows.key:
        return (f.name for f in type.fields if _is_loss_field(f, tokens.ragged))
    return _features(graph, type, stream) if stream in beside else type.names


def _joined(graph: Graph, task: Task) -> tuple[str, list[str]]:
    """The stream of rows that a train task reads, and those joined to it inside the task."""
    stream, beside = _stage(graph, task, "train").inputs[0], list[str]()
    while stream not in task.inputs:
        stage = graph.stage(graph.stream(stream).producer)
        beside += stage.inputs[1:]
        stream = stage.inputs[0]
    return stream, beside


def _is_loss_field(field: Field, tokens: tuple[str, ...]) -> bool:
    """Numbers, one value a token or one a row."""
    return field.dtype != "str" and field.ragged in ((), tokens)


def _features(graph: Graph, items: RecordType, stream: str) -> Iterable[str]:
    """What takes the placeholders' place: the applied module's output, or floating fields."""
    producer = graph.stage(graph.stream(stream).producer)
    if producer.op == "apply":
        return (str(producer.attributes.get("output", "features")),)
    return (f.name for f in items.fields if f.dims and f.dtype.startswith(("float", "bfloat")))


def _stage(graph: Graph, task: Task, op: str) -> Stage:
    return next(stage for name in task.stages if (stage := graph.stage(name)).op == op)
