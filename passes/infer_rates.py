"""infer-rates: how many records each stream carries for one source sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import Index, agent_of, attribute, flow_order, index
from flowgraph.passes import assumptions
from flowgraph.passes.state import Choices, State
from flowgraph.runtime.policy.roofline import SAMPLE_TOKENS


@dataclass(frozen=True, slots=True)
class InferRates:
    """Requires explicit edges. Ensures a rate and a token count for every stream.

    A rate is exact where the graph decides it and an expectation where data does. Refuses a
    `group` of fixed size that its rows in a step cannot fill. Changes nothing else.
    """

    name: ClassVar[str] = "infer-rates"

    def apply(self, state: State) -> State:
        at = index(state.graph)
        choices = Choices(self.name, state.pins)
        rates: dict[str, Fraction] = {}
        tokens: dict[str, float] = {}
        for stage in flow_order(at)[0]:
            _check_group(at, stage, rates)
            for output in stage.outputs:
                rates[output], why = _rate(at, stage, output, rates)
                tokens[output] = _tokens(at, stage, output, tokens)
                if why:
                    choices.choose(output, "rate", str(rates[output]), why)
        for stream in state.graph.streams:
            if stream.kind == "gradient":
                rates[stream.name] = rates[stream.name.removesuffix(".gradient")]
        return choices.onto(state, rates=rates, tokens=tokens)


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
        return read * tries * calls, f"{tries} trajectories x {_number(calls)} calls expected"
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


def _check_group(at: Index, stage: Stage, rates: Mapping[str, Fraction]) -> None:
    """A group's rows share a sample, so the rows of one sample must fill whole groups."""
    size = attribute(stage, "size") if stage.op == "group" else 0
    if not size:
        return
    rows, by, why = rates[stage.inputs[0]], attribute(stage, "by"), "rows a sample"
    game, agent = _played(at, stage)
    if game and agent:
        if not {"calls", "mean"} & agent.expect.keys():
            return  # data decides, and the run checks it
        if "trajectory" in by:
            rows, why = rows / attribute(game, "trajectories"), "rows a trajectory"
        if "call" in by:
            rows, why = rows / calls_of(agent), f"rows a {' and '.join(by)}"
    if rows % size == 0:
        return
    raise GraphError(
        f"stage {stage.name!r}: expects rows in groups of {size}, got {_number(rows)} {why}, which "
        f"leaves {_number(rows % size)} over ({_number(rows)} = {rows // size} x {size} + "
        f"{_number(rows % size)}; `batch` counts source samples, not rows)",
        at=stage.at,
        hint=_group_hint(rows, size),
        node=f'stage "{stage.name}"',
        term=f"size: {size}",
    )


def _played(at: Index, stage: Stage) -> tuple[Stage | None, Agent | None]:
    """The episodes stage, and the agent in it, whose rows these are."""
    stream = stage.inputs[0]
    while (made := at.producer(stream)) and made.op != "episodes" and made.inputs:
        stream = made.inputs[0]
    if made is None or made.op != "episodes":
        return None, None
    return made, at.agents.get(agent_of(made, stream))


def _group_hint(rows: Fraction, size: int) -> str:
    if rows.denominator != 1:
        return "leave `size` out: the episodes decide how many calls there are"
    sizes = [n for n in range(1, int(rows) + 1) if rows % n == 0]
    near = min(sizes, key=lambda n: (abs(n - size), n))
    return f"size={near}, which divides {rows}; or leave `size` out to take all rows together"


def _number(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"{float(value):g}"
