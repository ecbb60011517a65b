"""simplify: less work for the same result."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.index import Index, attribute, index
from flowgraph.passes.state import Choices, State

EFFECTS = ("train", "sink", "evaluate")
"""Operations for whose sake the others run."""


@dataclass(frozen=True, slots=True)
class Simplify:
    """Requires explicit edges. Ensures that every stage reaches a train, sink or evaluate, that no
    two maps do the same to the same stream, and that filters stand before maps that they need not
    wait for. Changes nothing else.

    A filter changes places with the map before it when its fields (`reads`) are among those that
    the map hands on as they were (`keeps`), both declared, and the map's input has the type of its
    output: the filter then sees the same values, and the same samples pass in the same order.
    Filters are kept whatever reads them, since they decide membership, and so are stages that an
    evaluation is of. Maps in a row need no fusing: tasks run them without a channel in between.
    """

    name: ClassVar[str] = "simplify"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        graph = _merge_equal_maps(state.graph, choices)
        graph = _filters_first(graph, choices)
        graph = _without_dead(graph, choices)
        return choices.onto(state, graph=graph)


def _merge_equal_maps(graph: Graph, choices: Choices) -> Graph:
    """Of maps that are alike but for their name, the first one serves the readers of all."""
    at = index(graph)
    named = {name for stage in graph.stages for name in (stage.attributes.get("of"),) if name}
    first: dict[str, Stage] = {}
    replaced: dict[str, str] = {}
    gone: set[str] = set()
    for stage in graph.stages:
        if stage.op != "map" or stage.name in named:
            continue
        inputs = tuple(replaced.get(name, name) for name in stage.inputs)
        key = repr((inputs, stage.function, sorted(stage.attributes.items()), _made(at, stage)))
        other = first.setdefault(key, stage)
        if other is not stage:
            replaced[stage.outputs[0]] = other.outputs[0]
            gone.add(stage.name)
            choices.choose(stage.name, "merged", other.name, "the same function of the same stream")
    if not gone:
        return graph
    stages = tuple(
        replace(s, inputs=tuple(replaced.get(name, name) for name in s.inputs))
        for s in graph.stages
        if s.name not in gone
    )
    streams = tuple(stream for stream in graph.streams if stream.producer not in gone)
    return replace(graph, stages=stages, streams=streams)


def _made(at: Index, stage: Stage) -> object:
    return at.streams[stage.outputs[0]].type


def _filters_first(graph: Graph, choices: Choices) -> Graph:
    """One exchange after another, until no filter can go further."""
    while (pair := _exchangeable(index(graph))) is not None:
        before, keep = pair
        choices.choose(
            keep.name,
            "before",
            before.name,
            f"it reads {', '.join(attribute(keep, 'reads'))}, which {before.name!r} hands on",
        )
        graph = _exchanged(graph, before, keep)
    return graph


def _exchangeable(at: Index) -> tuple[Stage, Stage] | None:
    """A map and the filter behind it that may change places."""
    for keep in at.graph.by_op("filter"):
        before = at.producer(keep.inputs[0])
        reads = attribute(keep, "reads")
        if (
            before is not None
            and before.op == "map"
            and not attribute(before, "credit")
            and reads
            and set(reads) <= set(attribute(before, "keeps"))
            and len(at.consumers[before.outputs[0]]) == 1
            and at.streams[before.inputs[0]].type == at.streams[before.outputs[0]].type
        ):
            return before, keep
    return None


def _exchanged(graph: Graph, before: Stage, keep: Stage) -> Graph:
    """The stages in the other order; streams keep their names and change their producers."""
    start, middle, end = before.inputs, before.outputs, keep.outputs
    new: Mapping[str, Stage] = {
        before.name: replace(keep, inputs=start, outputs=middle),
        keep.name: replace(before, inputs=middle, outputs=end),
    }
    producers = {middle[0]: keep.name, end[0]: before.name}
    return replace(
        graph,
        stages=tuple(new.get(stage.name, stage) for stage in graph.stages),
        streams=tuple(_made_by(stream, producers) for stream in graph.streams),
    )


def _made_by(stream: Stream, producers: Mapping[str, str]) -> Stream:
    if stream.kind == "data" and stream.name in producers:
        return replace(stream, producer=producers[stream.name])
    return stream


def _without_dead(graph: Graph, choices: Choices) -> Graph:
    live = _live(graph)
    for stage in graph.stages:
        if stage.name not in live:
            choices.choose(stage.name, "removed", True, "nothing reads what it makes")
    if len(live) == len(graph.stages):
        return graph
    streams = tuple(stream for stream in graph.streams if stream.producer in live)
    stages = tuple(stage for stage in graph.stages if stage.name in live)
    return replace(graph, stages=stages, streams=streams)


def _live(graph: Graph) -> set[str]:
    at = index(graph)
    roots: list[Stage] = [stage for stage in graph.stages if stage.op in (*EFFECTS, "filter")]
    roots += [
        at.stages[stage.attributes["of"]]
        for stage in graph.by_op("evaluate")
        if stage.attributes.get("of") in at.stages
    ]
    live: set[str] = set()
    waiting = roots
    while waiting:
        stage = waiting.pop()
        if stage.name not in live:
            live.add(stage.name)
            waiting.extend(at.parents(stage))
    return live
