"""check-consistency: every training edge reads the version it must."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from flowgraph.ir.errors import GraphError
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.state import Choices, State

DELAYS: Mapping[str, int] = {"data": 0, "gradient": 0, "weights": 1}
"""Versions between what is made and what is read, by kind of stream, for a synchronous step."""


@dataclass(frozen=True, slots=True)
class CheckConsistency:
    """Requires explicit edges. Ensures that a step is synchronous; changes nothing.

    Synchronous: what step s trains was rolled out and encoded by version s, the one that the
    update of step s-1 made. It follows from three facts: data and gradients stay in their step
    (delay 0), weights cross exactly one update (delay 1), and (a rule of the verifier) one train
    stage alone decides when a module's version moves on.
    """

    name: ClassVar[str] = "check-consistency"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        for stream in state.graph.streams:
            if stream.delay != DELAYS[stream.kind]:
                raise GraphError(
                    f"stream {stream.name!r}: expects delay {DELAYS[stream.kind]} of "
                    f"{stream.kind}, for a step to be synchronous, got {stream.delay}",
                    at=stream.at,
                    hint="leave the stream out: the compiler makes it",
                    node=f'stream "{stream.name}"',
                    term=f"delay={stream.delay}",
                )
        for module in trained_modules(state.graph):
            because = "update, then weights, then the next step: data and gradients have delay 0"
            choices.choose(module, "staleness", 0, because)
        return choices.onto(state)
