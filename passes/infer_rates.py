"""infer-rates: how many records each stream carries for one source sample."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import Index, agent_of, attribute, flow_order, index
from flowgraph.passes import assumptions
from flowgraph.passes.fillable import check_group, check_join, number, reachable_steps
from flowgraph.passes.state import Choices, State
from flowgraph.runtime.policy.roofline import SAMPLE_TOKENS


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
        rates: dict[str, Fraction] = {}
        tokens: dict[str, float] = {}
        fixed = fixed_calls(state.graph.agents)
        for stage in flow_order(at)[0]:
            check_group(at, stage, rates, fixed)
            check_join(at, stage)
            for output in stage.outputs:
                rates[output], why = _rate(at, stage, output, rates)
                tokens[output] = _tokens(at, stage, output, tokens)
                if why:
                    choices.choose(output, "rate", str(rates[output]), why)
        for stream in state.graph.streams:
            if stream.kind == "gradient":
                rates[stream.name] = rates[stream.name.removesuffix(".gradient")]
        _check_sources(state, at, choices)
        return choices.onto(state, rates=rates, tokens=tokens)


def _check_sources(state: State, at: Index, choices: Choices) -> None:
    """Whether the sources' measured sizes give all steps."""
    batch = attribute(state.graph.by_op("train")[0], "batch")
    for source in state.graph.by_op("source"):
        found = reachable_steps(at, source, batch, state.graph.steps, state.measured)
        if found is not None:
            choices.choose(source.name, "steps", *found)


def expectation(expect: Mapping[str, Any], name: str, default: float) -> Fraction:
    """An agent's expected `name`: a number, or the mean of a distribution."""
    value = expect.get(name, default)
    if isinstance(value, Mapping):
        value = value.get("mean", default)
    return Fraction(str(value))


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


def _tokens(at: Index, stage: Stage, output: str, tokens: Mapping[str, float]) -> float:
    """Expected tokens of one record; 0 for records without tokens."""
    if stage.op == "episodes":
        agent = at.agents.get(agent_of(stage, output))
        expect = agent.expect if agent else {}
        prompt = expectation(expect, "prompt", assumptions.PROMPT_TOKENS)
        return float(prompt + expectation(expect, "response", assumptions.RESPONSE_TOKENS))
    known = [tokens[name] for name in stage.inputs if tokens.get(name)]
    if at.streams[output].type.field("tokens") is None:
        return 0.0
    return known[0] if known else float(SAMPLE_TOKENS)


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
