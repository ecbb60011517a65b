"""plan-packing: where samples become packed rows, and how long those are."""

from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.index import attribute, index
from flowgraph.passes.state import Choices, State


@dataclass(frozen=True, slots=True)
class PlanPacking:
    """Requires rates. Ensures that each train stage's `micro_batch` is decided and holds a pack.

    Packing happens in the trainer, behind the channel: samples travel unpacked, so that a step's
    rows may be dealt to ranks in any split. Changes only the `micro_batch` of train stages.
    """

    name: ClassVar[str] = "plan-packing"

    def apply(self, state: State) -> State:
        at = index(state.graph)
        choices = Choices(self.name, state.pins)
        micro: dict[str, int] = {}
        for train in state.graph.by_op("train"):
            packs = [stage for stage in at.parents(train) if stage.op == "pack"]
            length = max((attribute(stage, "tokens") for stage in packs), default=0)
            asked = attribute(train, "micro_batch")
            micro[train.name] = choices.choose(
                train.name,
                "micro_batch",
                max(asked, length),
                f"{asked} tokens asked"
                if asked >= length
                else f"one packed row of {length} tokens must fit; {asked} asked",
            )
            choices.choose(
                train.name,
                "packing",
                "in the trainer",
                f"samples then go to any rank; rows of at most {length} tokens"
                if length
                else "samples then go to any rank; rows as long as the samples",
                runner_up="before the channel",
            )
        stages = tuple(
            replace(stage, attributes={**stage.attributes, "micro_batch": micro[stage.name]})
            if stage.name in micro and stage.attributes.get("micro_batch") != micro[stage.name]
            else stage
            for stage in state.graph.stages
        )
        return choices.onto(state, graph=replace(state.graph, stages=stages))
