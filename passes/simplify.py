"""simplify: less work for the same result."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.index import Index, attribute, index
from flowgraph.passes.infer_rates import inferred
from flowgraph.passes.state import Choices, State

EFFECTS = ("train", "sink", "evaluate")
"""Operations for whose sake the others run."""

PURE = ("map", "filter", "unnest", "group", "apply")
"""Operations that make the same of the same input; modules that train are left out."""


@dataclass(frozen=True, slots=True)
class Simplify:
    """Requires explicit edges. Ensures that every stage reaches a train, sink or evaluate, that no
    two stages do the same to the same stream, and that filters stand before maps that they need
    not wait for. Changes nothing but stages, streams, and rates with them.

    A filter changes places with the map before it when the fields that its function is handed
    (`reads`) are the key or among those that the map hands on past its own (`keeps`): the filter
    then sees the same values, and the same records pass in the same order. Filters are kept
    whatever reads them, since they decide membership, and so are stages that an evaluation is of.
    Maps in a row need no fusing: tasks run them without a channel in between.
    """

    name: ClassVar[str] = "simplify"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        graph = _merge_equal(state.graph, choices)
        graph = _filters_first(graph, choices)
        graph = _without_dead(graph, choices)
        changed = graph is not state.graph and state.rates
        return choices.onto(
            state, graph=graph, **(inferred(index(graph)).data() if changed else {})
        )


def _merge_equal(graph: Graph, choices: Choices) -> Graph:
    """Of stages that are alike but for their name, the first one serves the readers of all.

    Declaration order is flow order, so that chains of equal stages become one, link by link.
    """
    at = index(graph)
    named = {name for stage in graph.stages for name in (stage.attributes.get("of"),) if name}
    first: dict[str, Stage] = {}
    replaced: dict[str, str] = {}
    gone: set[str] = set()
    for stage in graph.stages:
        if stage.name in named or not _is_pure(at, stage):
            continue
        inputs = tuple(replaced.get(name, name) for name in stage.inputs)
        other = first.setdefault(_sameness(at, stage, inputs), stage)
        if other is not stage:
            replaced[stage.outputs[0]] = other.outputs[0]
            gone.add(stage.name)
            what = "function" if stage.function else stage.op
            choices.choose(stage.name, "merged", other.name, f"the same {what} of the same stream")
    if not gone:
        return graph
    stages = tuple(
        replace(s, inputs=tuple(replaced.get(name, name) for name in s.inputs))
        for s in graph.stages
        if s.name not in gone
    )
    streams = tuple(stream for stream in graph.streams if stream.producer not in gone)
    return replace(graph, stages=stages, streams=streams)


def _is_pure(at: Index, stage: Stage) -> bool:
    """A module that trains gives gradients to each of its readers: only frozen ones are shared."""
    frozen = all(at.modules[name].trainable is False for name in stage.modules)
    return stage.op in PURE and frozen


def _sameness(at: Index, stage: Stage, inputs: tuple[str, ...]) -> str:
    """Equal for two stages that make equal records."""
    made = at.streams[stage.outputs[0]].type
    own = (stage.op, stage.function, sorted(stage.attributes.items()), stage.modules)
    return repr((inputs, own, made))


@dataclass(slots=True)
class _Order:
    """A graph's stages and streams while filters move. places: where each stage stands.

    readers: of each stream, how many; an exchange leaves that as it is.
    """

    stages: list[Stage]
    streams: dict[str, Stream]
    places: dict[str, int]
    readers: Counter[str]

    def before(self, keep: Stage) -> Stage | None:
        """The map that the filter may change places with, if it stands behind one."""
        maker = self.places.get(self.streams[keep.inputs[0]].producer)
        reads = attribute(keep, "reads")
        if maker is None or not reads or self.readers[keep.inputs[0]] != 1:
            return None
        stage = self.stages[maker]
        if stage.op != "map" or attribute(stage, "credit"):
            return None
        handed_on = {*attribute(stage, "keeps"), *self.streams[stage.inputs[0]].type.key}
        return stage if handed_on.issuperset(reads) else None

    def exchange(self, before: Stage, keep: Stage) -> Stage:
        """The stages in the other order; streams keep their names and change their makers.

        Returns the filter as it is now, whose output has the type of its new input.
        """
        start, middle, end = before.inputs[0], before.outputs[0], keep.outputs[0]
        moved = replace(keep, inputs=(start,), outputs=(middle,))
        behind = replace(before, inputs=(middle,), outputs=(end,))
        first, second = self.places[before.name], self.places[keep.name]
        self.stages[first], self.stages[second] = moved, behind
        self.places[keep.name], self.places[before.name] = first, second
        read, made = self.streams[start].type, self.streams[middle].type
        self.streams[middle] = replace(self.streams[middle], producer=keep.name, type=read)
        self.streams[end] = replace(self.streams[end], producer=before.name, type=made)
        return moved


def _filters_first(graph: Graph, choices: Choices) -> Graph:
    """Each filter as far up as it may go, those that stand first before the others."""
    filters = graph.by_op("filter")
    order = _Order(
        stages=list(graph.stages),
        streams={stream.name: stream for stream in graph.streams},
        places={stage.name: i for i, stage in enumerate(graph.stages)},
        readers=Counter(name for stage in graph.stages for name in stage.inputs),
    )
    moves = 0
    for keep in filters:
        keep = order.stages[order.places[keep.name]]
        while (before := order.before(keep)) is not None:
            reads = ", ".join(attribute(keep, "reads"))
            because = f"it reads {reads}, which {before.name!r} hands on"
            choices.choose(keep.name, "before", before.name, because)
            keep = order.exchange(before, keep)
            moves += 1
    if not moves:
        return graph
    return replace(graph, stages=tuple(order.stages), streams=tuple(order.streams.values()))


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
