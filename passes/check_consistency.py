"""check-consistency: every training edge reads the version it must."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from flowgraph.ir.errors import GraphError, InternalError
from flowgraph.ir.graph import Graph, Stage
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.state import Choices, State

DELAYS: Mapping[str, int] = {"data": 0, "gradient": 0, "weights": 1}
"""Versions between what is made and what is read, by kind of stream, for a synchronous step."""


@dataclass(frozen=True, slots=True)
class CheckConsistency:
    """Requires explicit edges. Ensures that a step is synchronous; changes nothing.

    Synchronous: what step s trains was rolled out and encoded by version s, the one that the
    update of step s-1 made. It follows from three facts checked here: data and gradients stay in
    their step (delay 0), weights cross exactly one update (delay 1), and one train stage alone
    decides when a module's version moves on.
    """

    name: ClassVar[str] = "check-consistency"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        for stream in state.graph.streams:
            if stream.delay != DELAYS[stream.kind]:
                raise InternalError(
                    f"stream {stream.name!r}: expects delay {DELAYS[stream.kind]} of a "
                    f"{stream.kind} stream in a synchronous step, got {stream.delay}",
                    at=stream.at,
                )
        _check_one_trainer(state.graph)
        for module in trained_modules(state.graph):
            because = "update, then weights, then the next step: data and gradients have delay 0"
            choices.choose(module, "staleness", 0, because)
        return choices.onto(state)


def _check_one_trainer(graph: Graph) -> None:
    trainers: dict[str, Stage] = {}
    for stage in graph.by_op("train"):
        for name in stage.modules:
            if graph.module(name).trainable is False:
                continue
            other = trainers.setdefault(name, stage)
            if other is not stage:
                raise GraphError(
                    f"stage {stage.name!r}: expects to be the only one that trains module "
                    f"{name!r}, got {other.name!r} ({other.at}) as well",
                    at=stage.at,
                    hint=f"join their streams and train {name!r} in one stage",
                )
