"""What a train task's stages say together: which streams it reads, how it packs, what it trains.

Read once from the plan; a run looks nothing up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from flowgraph.ir.errors import GraphError, InternalError
from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.plan import Plan, Task
from flowgraph.ir.types import RecordType
from flowgraph.runtime.policy.admit import OverLong
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer.packing import PackLimits

TOKENS = "tokens"
"""The field whose ragged dim is the sequence that the loss looks along."""

LOSS_MASK = "loss_mask"
"""The field that says which tokens the loss is asked about, and what they weigh."""

INSIDE = ("pack", "join", "group")
"""Operations that a train task does itself, before its loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A stream of items whose `field` takes the place of placeholder tokens.

    key: the items' key without its last field, which is what they are regrouped by.
    item: that last field. trained: their gradient goes back to the module that made them.
    """

    stream: str
    field: str
    key: tuple[str, ...]
    item: str
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpec:
    """A train task, resolved.

    samples: the stream of rows. beside: streams of one record a row, joined by `key` for their
    fields. token_fields, row_fields: names of the numeric fields with one value a token and with
    one value a row. temperature: that the rows' tokens were sampled at.
    """

    stage: Stage
    samples: str
    key: tuple[str, ...]
    beside: tuple[str, ...]
    features: Features | None
    placeholder: int
    join: Stage | None
    limits: PackLimits
    token_fields: frozenset[str]
    row_fields: frozenset[str]
    temperature: float

    @classmethod
    def of(cls, plan: Plan, task: Task) -> TrainSpec:
        """Raises GraphError for streams that cannot be trained on as declared."""
        topology, graph = Topology(plan), plan.graph
        stage = topology.train_stage(task)
        inner = _inner_stages(graph, task, stage)
        joins = [one for one in inner if one.op == "join"]
        samples = (inner[-1] if inner else stage).inputs[0]
        type = graph.stream(samples).type
        tokens = type.field(TOKENS)
        if tokens is None or len(tokens.dims) != 1 or tokens.ragged == ():
            raise GraphError(
                f"stage '{stage.name}': expects rows with `{TOKENS}: int64[n*]`, got {type}",
                at=stage.at,
            )
        others = [name for one in joins for name in one.inputs[1:]]
        beside = tuple(name for name in others if graph.stream(name).type.key == type.key)
        items = [name for name in others if name not in beside]
        if len(items) > 1:
            raise GraphError(
                f"stage '{stage.name}': joins the items of {', '.join(items)}; one stream's "
                "features can take the placeholders' place",
                at=stage.at,
            )
        join = next((one for one in joins if set(items) <= set(one.inputs[1:])), None)
        trained = topology.trained_by(task)
        token_fields, row_fields = _fields(
            [graph.stream(name).type for name in (samples, *beside)], tokens.ragged[0]
        )
        return cls(
            stage=stage,
            samples=samples,
            key=type.key,
            beside=beside,
            features=_features(graph, cast(Stage, join), items[0], trained) if items else None,
            placeholder=int(join.attributes.get("placeholder", -1)) if join else -1,
            join=join,
            limits=_limits(stage, next((one for one in inner if one.op == "pack"), None)),
            token_fields=token_fields,
            row_fields=row_fields,
            temperature=sampling_temperature(graph, samples),
        )


def sampling_temperature(graph: Graph, stream: str) -> float:
    """The temperature at which the agent behind this stream of rows samples; 1 without one.

    Raises GraphError where that is 0.
    """
    while True:
        stage = graph.stage(graph.stream(stream).producer)
        if stage.op == "episodes":
            agent = graph.agent(stream.rpartition(".")[2])  # `<episodes>.<agent>`
            temperature = float(agent.sampling.get("temperature", 1.0))
            if temperature <= 0.0:
                raise GraphError(
                    f"agent '{agent.name}': samples at temperature 0, where the likeliest token "
                    "has probability 1 and nothing can be learned from it",
                    at=agent.at,
                    hint="a temperature above 0",
                )
            return temperature
        if not stage.inputs:
            return 1.0
        stream = stage.inputs[0]


def _inner_stages(graph: Graph, task: Task, stage: Stage) -> list[Stage]:
    """Stages between the task's border and its loss, the last one first."""
    inner: list[Stage] = []
    stream = stage.inputs[0]
    while stream not in task.inputs:
        before = graph.stage(graph.stream(stream).producer)
        if before.name not in task.stages or before.op not in INSIDE:
            raise InternalError(
                f"task '{task.name}': stream '{stream}' neither crosses its border nor comes from "
                f"a {' or '.join(INSIDE)} inside"
            )
        inner.append(before)
        stream = before.inputs[0]
    return inner


def _features(graph: Graph, join: Stage, stream: str, trained: Sequence[str]) -> Features:
    type = graph.stream(stream).type
    producer = graph.stage(graph.stream(stream).producer)
    if producer.op == "apply":
        field = str(producer.attributes.get("output", "features"))
    else:
        found = [f.name for f in type.fields if f.dims and f.dtype.startswith(("float", "bfloat"))]
        field = found[0] if len(found) == 1 else ""
    declared = type.field(field)
    if declared is None or len(declared.ragged) > 1:
        raise GraphError(
            f"stage '{join.name}': expects items with one floating field of at most one ragged "
            f"dim for features, got {type}",
            at=join.at,
        )
    if int(join.attributes.get("placeholder", -1)) < 0:
        raise GraphError(
            f"stage '{join.name}': the token that features take the place of is not named",
            at=join.at,
            hint="join(..., placeholder=<token id>)",
        )
    return Features(
        stream=stream,
        field=field,
        key=type.key[:-1],
        item=type.key[-1],
        trained=producer.op == "apply" and producer.modules[0] in trained,
    )


def _fields(types: Sequence[RecordType], dim: str) -> tuple[frozenset[str], frozenset[str]]:
    fields = [field for type in types for field in type.fields if field.dtype != "str"]
    return (
        frozenset(field.name for field in fields if field.ragged == (dim,)),
        frozenset(field.name for field in fields if not field.ragged),
    )


def _limits(stage: Stage, pack: Stage | None) -> PackLimits:
    micro_batch = int(stage.attributes.get("micro_batch", 4096))
    if pack is None:
        return PackLimits(micro_batch=micro_batch)
    return PackLimits(
        micro_batch=micro_batch,
        longest=int(pack.attributes["tokens"]),
        over_long=cast(OverLong, pack.attributes.get("over_long", "error")),
    )
