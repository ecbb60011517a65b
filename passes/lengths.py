"""Expected lengths of records: entries in their ragged dims, and the tokens that models read."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.passes import assumptions
from flowgraph.runtime.policy.roofline import SAMPLE_TOKENS

Lengths = Mapping[str, float]
"""Entries a record, by the name of the ragged dim; dims that nobody told of are not in it."""


def expectation(expect: Mapping[str, Any], name: str, default: float) -> Fraction:
    """The expected `name`: a number, or the mean of a distribution."""
    value = expect.get(name, default)
    if isinstance(value, Mapping):
        value = value.get("mean", default)
    return Fraction(str(value))


def lengths_of(at: Index, stage: Stage, output: str, known: Mapping[str, Lengths]) -> Lengths:
    """Of the output's records. known: those of all streams before it.

    What a source declares holds downstream; an encoder that merges squares of its input makes as
    many fewer features.
    """
    if stage.op == "source":
        told = attribute(stage, "expect")
        declared = {dim: float(expectation(told, dim, 0)) for dim in told}
        tokens = {"tokens": float(SAMPLE_TOKENS)} if _has_tokens(at, output) else {}
        # With no word of a source the buffers are made for many items, whatever is expected.
        unnests = at.graph.by_op("unnest") if told else ()
        items = {attribute(s, "dim"): attribute(s, "expect") for s in unnests}
        return {**tokens, **items, **declared}
    if stage.op == "episodes":
        return {"tokens": _call_tokens(at, stage, output)}
    found = {dim: n for name in reversed(stage.inputs) for dim, n in known[name].items()}
    if stage.op == "apply":
        merge = int(at.modules[stage.modules[0]].description.get("merge") or 1)
        read = model_tokens(at, stage.inputs[0], known[stage.inputs[0]])
        if read:
            found[attribute(stage, "output")] = read / merge**2
    return found


def model_tokens(at: Index, stream: str, lengths: Lengths) -> float:
    """What a module computes of one record: its tokens, or else entries of the first ragged dim;
    0 where nothing is known."""
    if _has_tokens(at, stream):
        return lengths.get("tokens", float(SAMPLE_TOKENS))
    dims = [dim for field in at.streams[stream].type.fields for dim in field.ragged[:1]]
    return lengths.get(dims[0], 0.0) if dims else 0.0


def _has_tokens(at: Index, stream: str) -> bool:
    return at.streams[stream].type.field("tokens") is not None


def _call_tokens(at: Index, stage: Stage, output: str) -> float:
    """Prompt and response of one call."""
    agent = at.agents.get(agent_of(stage, output))
    expect = agent.expect if agent else {}
    prompt = expectation(expect, "prompt", assumptions.PROMPT_TOKENS)
    return float(prompt + expectation(expect, "response", assumptions.RESPONSE_TOKENS))
