"""simplify: what has no effect on any result is left out."""

from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.index import index
from flowgraph.passes.state import Choices, State

EFFECTS = ("train", "sink", "evaluate")
"""Operations for whose sake the others run."""


@dataclass(frozen=True, slots=True)
class Simplify:
    """Requires explicit edges. Ensures that every stage reaches a train, sink or evaluate.

    Filters are kept whatever reads them, since they decide membership, and so are stages that an
    evaluation is of. Changes nothing else.
    """

    name: ClassVar[str] = "simplify"

    def apply(self, state: State) -> State:
        graph = state.graph
        live = _live(graph)
        choices = Choices(self.name, state.pins)
        for stage in graph.stages:
            if stage.name not in live:
                choices.choose(stage.name, "removed", True, "nothing reads what it makes")
        if len(live) == len(graph.stages):
            return choices.onto(state)
        streams = tuple(stream for stream in graph.streams if stream.producer in live)
        stages = tuple(stage for stage in graph.stages if stage.name in live)
        return choices.onto(state, graph=replace(graph, stages=stages, streams=streams))


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
