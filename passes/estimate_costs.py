"""estimate-costs: seconds and memory of each part, under each layout that it may have."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.index import attribute, index
from flowgraph.ir.plan import Layout
from flowgraph.passes.demand import (
    accelerated,
    batch_of,
    used_agents,
)
from flowgraph.passes.headroom import length_spreads
from flowgraph.passes.layout_costs import (
    Estimate,
    engine_estimate,
    gang_estimate,
)
from flowgraph.passes.layout_options import engine_options, gang_options
from flowgraph.passes.state import Choices, Cost, LaidOut, State
from flowgraph.passes.words import seconds_text
from flowgraph.passes.works import engine_work, gang_modules, gang_work, only_models, places_of
from flowgraph.runtime.policy.step_time import (
    STAGE_SECONDS,
)


@dataclass(frozen=True, slots=True)
class EstimateCosts:
    """Requires rates. Ensures a `Cost` of the host, each engine and each gang on one device, and on
    accelerators `options`: what each part takes under every layout that fits the memory.

    Measured times take the place of estimates on the kind of device they were measured on.
    Refuses a part that no layout makes fit. Changes nothing else.
    """

    name: ClassVar[str] = "estimate-costs"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        places = places_of(state)
        first = places[0]
        whole = replace(state, spreads=length_spreads(index(state.graph)))
        state = only_models(whole)
        costs = [_host_cost(state, _drawn(whole))]
        options: dict[str, tuple[LaidOut, ...]] = {}
        for agent in used_agents(state.graph):
            part = f"{agent.name}.engine"
            made = engine_estimate(engine_work(state, agent, first), Layout(), 1, first)
            costs.append(_cost(state, part, made, first.kind))
            if accelerated(state):
                options[part] = engine_options(state, agent, places)
        for module in gang_modules(state):
            part = f"{module.name}.gang"
            made = gang_estimate(gang_work(state, module, first), Layout(), first)
            costs.append(_cost(state, part, made, first.kind))
            if accelerated(state):
                options[part] = gang_options(state, module, places)
        for cost in costs:
            shown = f"{seconds_text(cost.seconds)}, {cost.memory_bytes / 2**20:.0f} MiB"
            choices.choose(cost.part, "cost", shown, _because(state, cost, first.kind))
        return choices.onto(whole, costs={cost.part: cost for cost in costs}, options=options)


def _cost(state: State, part: str, made: Estimate, kind: str) -> Cost:
    return Cost(
        part=part,
        seconds=made.seconds,
        memory_bytes=made.memory_bytes,
        terms=made.terms,
        measured=any(
            state.measured.get(part, name, kind)
            for name in ("iteration_s", "token_s", "item_s", "row_s", "prefill_token_s")
        ),
    )


def _because(state: State, cost: Cost, kind: str) -> str:
    own = {
        name.rpartition(".")[2]: measure
        for name, measure in state.measured.values.items()
        if name.rpartition(".")[0] == cost.part and kind == state.measured.device
    }
    terms = ", ".join(f"{k} {v / 2**20:.1f} MiB" for k, v in cost.terms.items())
    if own:
        said = ", ".join(f"{name} {measure}" for name, measure in own.items())
        return f"measured: {said}" + (f"; estimated: {terms}" if terms else "")
    return f"estimated: {terms or 'user code assumed'}"


def _host_cost(state: State, drawn: float) -> Cost:
    """drawn: samples that are made for each that a step takes."""
    games = sum(attribute(s, "trajectories") for s in state.graph.by_op("episodes"))
    core = next((k.name for k in state.cluster.kinds if k.kind == "cpu"), "")
    measured = state.measured.get("host", "sample_s", core)
    sample = measured.value if measured else STAGE_SECONDS * max(1, games)
    seconds = batch_of(state.graph) * drawn * sample
    return Cost(part="host", seconds=seconds, memory_bytes=0, measured=measured is not None)


def _drawn(state: State) -> float:
    """Samples that are made for each that a step takes: filters of samples refill from the source
    what they reject."""
    at = index(state.graph)
    most = 1.0
    for train in state.graph.by_op("train"):
        filters = [stage for stage in at.ancestors(train) if stage.op == "filter"]
        refilled = [s for s in filters if at.streams[s.inputs[0]].type.key == ("sample",)]
        most = max(most, math.prod(1 / attribute(stage, "expect") for stage in refilled))
    return most
