"""infer-rates: how many records each stream carries for one source sample."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import Index, agent_of, attribute, flow_order, index
from flowgraph.passes.fillable import check_group, check_join, number, reachable_steps
from flowgraph.passes.lengths import Lengths, expectation, lengths_of, model_tokens
from flowgraph.passes.state import Choices, State


@dataclass(frozen=True, slots=True)
class InferRates:
    """Requires explicit edges. Ensures a rate and a token count for every stream.

    A rate is an exact fraction where the graph decides it, and the mean of a declared or measured
    distribution where data does. Refuses what could never be filled: a `group` of a fixed size that
    its rows do not divide into or that a filter takes rows from, a join whose partners a filter
    leaves out, a step of more samples than its source has and does not repeat.
    Changes nothing else.
    """

    name: ClassVar[str] = "infer-rates"

    def apply(self, state: State) -> State:
        at = index(state.graph)
        choices = Choices(self.name, state.pins)
        found = inferred(at)
        fixed = fixed_calls(state.graph.agents)
        for stage in flow_order(at)[0]:
            check_group(at, stage, found.rates, fixed)
            check_join(at, stage)
        for stream, why in found.reasons.items():
            choices.choose(stream, "rate", str(found.rates[stream]), why)
        _check_sources(state, at, choices)
        return choices.onto(state, **found.data())


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """Of each stream: records a source sample, tokens and lengths of a record; reasons: what a
    rate rests on, where it is not just its input's."""

    rates: Mapping[str, Fraction]
    tokens: Mapping[str, float]
    lengths: Mapping[str, Lengths]
    reasons: Mapping[str, str]

    def data(self) -> dict[str, Any]:
        """As the fields of a State."""
        return {"rates": self.rates, "tokens": self.tokens, "lengths": self.lengths}


def inferred(at: Index) -> Inferred:
    """What the graph's streams carry; pure arithmetic, nothing is refused."""
    rates: dict[str, Fraction] = {}
    lengths: dict[str, Lengths] = {}
    reasons: dict[str, str] = {}
    for stage in flow_order(at)[0]:
        for output in stage.outputs:
            rates[output], why = _rate(at, stage, output, rates)
            lengths[output] = lengths_of(at, stage, output, lengths)
            if why:
                reasons[output] = why
    for stream in at.graph.streams:
        if stream.kind == "gradient":
            rates[stream.name] = rates[stream.name.removesuffix(".gradient")]
            lengths[stream.name] = lengths[stream.name.removesuffix(".gradient")]
    tokens = {name: model_tokens(at, name, found) for name, found in lengths.items()}
    return Inferred(rates=rates, tokens=tokens, lengths=lengths, reasons=reasons)


def _check_sources(state: State, at: Index, choices: Choices) -> None:
    """Whether the sources' measured sizes give all steps."""
    batch = attribute(state.graph.by_op("train")[0], "batch")
    for source in state.graph.by_op("source"):
        found = reachable_steps(at, source, batch, state.graph.steps, state.measured)
        if found is not None:
            choices.choose(source.name, "steps", *found)


def calls_of(agent: Agent) -> Fraction:
    """Expected calls a trajectory; one unless declared."""
    name = "calls" if "calls" in agent.expect else "mean"
    return expectation(agent.expect, name, 1)


def _rate(
    at: Index, stage: Stage, output: str, rates: Mapping[str, Fraction]
) -> tuple[Fraction, str]:
    """The output's rate, and what it rests on ("" when it is just its input's)."""
    if stage.op == "source":
        return Fraction(1), ""
    read = rates[stage.inputs[0]]
    if stage.op == "unnest":
        expect = Fraction(str(attribute(stage, "expect")))
        return read * expect, f"{expect} {attribute(stage, 'dim')} a sample expected"
    if stage.op == "filter":
        stream = at.streams[stage.inputs[0]]
        if stream.type.key == ("sample",):
            return read, "membership refills from the source what the filter rejects"
        share = Fraction(str(attribute(stage, "expect")))
        return read * share, f"{share} of the records expected to be kept"
    if stage.op == "episodes":
        tries = attribute(stage, "trajectories")
        agent = at.agents.get(agent_of(stage, output))
        calls = calls_of(agent) if agent else Fraction(1)
        told = _spread(agent.expect.get("calls", agent.expect.get("mean"))) if agent else ""
        return read * tries * calls, f"{tries} trajectories x {number(calls)} calls expected{told}"
    return read, ""


def fixed_calls(agents: Iterable[Agent]) -> dict[str, Fraction]:
    """By agent, calls a trajectory where they are declared as a number: data decides the others."""
    found = {}
    for agent in agents:
        value = agent.expect.get("calls", agent.expect.get("mean"))
        if value is not None and not isinstance(value, Mapping):
            found[agent.name] = calls_of(agent)
    return found


def _spread(value: Any) -> str:
    """How a distribution spreads, for messages."""
    if not isinstance(value, Mapping):
        return ""
    if "p95" in value:
        return f" (95 of 100 below {value['p95']:g})"
    return f" (measured, ± {100 * value.get('spread', 0.0):.0f} %)"
