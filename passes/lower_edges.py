"""lower-edges: the edges that the user does not write."""

from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.index import Index, attribute, index
from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.passes.state import Choices, State

WEIGHTS = RecordType(
    fields=(
        Field(name="version", dtype="int64"),
        Field(name="weights", dtype="uint8", dims=(Ragged("bytes"),)),
    ),
    key=("version",),
)
"""One version of a module as a contiguous buffer."""


@dataclass(frozen=True, slots=True)
class LowerEdges:
    """Requires a verified graph. Ensures that every gradient and weight edge is a stream.

    Adds `<stream>.gradient` for each output of a module that a train stage behind it trains, and
    `<module>.weights` (delay 1: a step reads the version before its own update; more by the
    declared staleness) for each trained module. Changes nothing else.
    """

    name: ClassVar[str] = "lower-edges"

    def apply(self, state: State) -> State:
        graph = state.graph
        at = index(graph)
        choices = Choices(self.name, state.pins)
        added = [*_gradients(at), *_weights(graph)]
        for stream in added:
            because = (
                "the encoder is trained by what reads its features"
                if stream.kind == "gradient"
                else "a step is rolled out from one version and then updates it"
                if stream.delay == 1
                else f"staleness={stream.delay - 1} is declared: so many updates more may pass"
            )
            choices.choose(stream.name, "delay", stream.delay, because)
        have = {stream.name for stream in graph.streams}
        new = tuple(stream for stream in added if stream.name not in have)
        return choices.onto(state, graph=replace(graph, streams=(*graph.streams, *new)))


def trained_modules(graph: Graph) -> dict[str, Stage]:
    """Modules that some train stage updates, each with the first such stage."""
    found: dict[str, Stage] = {}
    fixed = {module.name for module in graph.modules if module.trainable is False}
    for stage in graph.by_op("train"):
        for name in stage.modules:
            if name not in fixed:
                found.setdefault(name, stage)
    return found


def trained_features(at: Index, train: Stage) -> list[tuple[Stage, str]]:
    """(apply stage, its output) for those whose module this train stage trains from behind."""
    own = set(train.modules[1:])
    return [
        (stage, output)
        for stage in at.ancestors(train)
        if stage.op == "apply" and stage.modules[0] in own
        if at.modules[stage.modules[0]].trainable is not False
        for output in stage.outputs
    ]


def _gradients(at: Index) -> list[Stream]:
    found: dict[str, Stream] = {}
    for train in at.graph.by_op("train"):
        for stage, output in trained_features(at, train):
            record = at.streams[output].type
            value = record.field(attribute(stage, "output"))
            kept = tuple(f for f in record.fields if f.name in record.key or f == value)
            found[output] = Stream(
                name=f"{output}.gradient",
                producer=train.name,
                type=RecordType(fields=kept, key=record.key),
                kind="gradient",
                at=train.at,
            )
    return list(found.values())


def _weights(graph: Graph) -> list[Stream]:
    return [
        Stream(
            name=f"{module}.weights",
            producer=train.name,
            type=WEIGHTS,
            kind="weights",
            delay=1 + attribute(train, "staleness"),
            at=train.at,
        )
        for module, train in trained_modules(graph).items()
    ]
