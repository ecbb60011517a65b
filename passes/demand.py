"""What a step asks of agents and modules: batch, calls, slots, lengths."""

import math
from fractions import Fraction

from flowgraph.ir.graph import Agent, Graph, Stage
from flowgraph.ir.index import attribute
from flowgraph.passes import assumptions
from flowgraph.passes.infer_rates import calls_of
from flowgraph.passes.lengths import expectation
from flowgraph.passes.state import State
from flowgraph.passes.words import counted

CPU_SLOTS = 256
DEVICE_SLOTS = 1024


def batch_of(graph: Graph) -> int:
    """Source samples a step; all train stages agree (verified)."""
    return int(attribute(graph.by_op("train")[0], "batch"))


def updates_of(graph: Graph) -> int:
    """Optimizer updates a step; all train stages agree (verified)."""
    return int(attribute(graph.by_op("train")[0], "updates"))


def accelerated(state: State) -> bool:
    """Whether the cluster has other devices than CPU cores."""
    return any(state.cluster.kind(node.device).kind != "cpu" for node in state.cluster.nodes)


def used_agents(graph: Graph) -> tuple[Agent, ...]:
    """Agents that some episodes stage plays, in declaration order."""
    played = {name for stage in graph.by_op("episodes") for name in stage.agents}
    return tuple(agent for agent in graph.agents if agent.name in played)


def games_of(graph: Graph, agent: Agent) -> tuple[Stage, ...]:
    """The episodes stages that the agent plays in."""
    return tuple(stage for stage in graph.by_op("episodes") if agent.name in stage.agents)


def calls_a_step(state: State, agent: Agent) -> Fraction:
    """Expected calls of the agent in a step, over all its games."""
    total = Fraction(0)
    for stage in games_of(state.graph, agent):
        read = state.rates[stage.inputs[0]]
        total += read * attribute(stage, "trajectories") * calls_of(agent)
    return total * batch_of(state.graph)


def prompt_tokens(agent: Agent) -> float:
    """Expected tokens of a prompt."""
    return float(expectation(agent.expect, "prompt", assumptions.PROMPT_TOKENS))


def response_tokens(agent: Agent) -> float:
    """Expected tokens of a response."""
    return float(expectation(agent.expect, "response", assumptions.RESPONSE_TOKENS))


def slots_of(state: State, agent: Agent) -> tuple[int, str]:
    """Rows that one engine of the agent decodes at once, and why."""
    batch = batch_of(state.graph)
    tries = max(attribute(stage, "trajectories") for stage in games_of(state.graph, agent))
    flight = max(attribute(stage, "in_flight") for stage in games_of(state.graph, agent))
    cap = DEVICE_SLOTS if accelerated(state) else CPU_SLOTS
    asked = min(flight, batch) * tries
    why = f"{counted(min(flight, batch), 'task')} in flight x {tries} trajectories"
    if asked > cap:
        return cap, f"{why} = {asked}, capped at {cap}"
    return asked, why


def max_length_of(state: State, agent: Agent) -> tuple[int, str]:
    """Tokens that a row of the agent may have, prompt included, and why."""
    declared = agent.sampling.get("max_length")
    if declared:
        return int(declared), "declared"
    model = state.graph.module(agent.module).description.get("max_length")
    if model:
        return int(model), "the longest that the model takes"
    tokens = prompt_tokens(agent) + response_tokens(agent)
    room = 64 * math.ceil(4 * tokens / 64)
    return room, f"four times the {tokens:g} tokens expected"


UNITS = 8
"""Units of a step, unless more devices want one each: what is made of one is trained meanwhile."""


def unit_of(state: State) -> tuple[int, str]:
    """Samples a unit when not exact, and why. Groups end with their sample: any unit is whole.

    A rank's least share is a unit, so that of a step's units each accelerator can have one.
    """
    if state.graph.by_op("episodes"):
        return 1, "trained as soon as a sample's rollout is complete"
    batch = batch_of(state.graph)
    kinds = [(node.devices, state.cluster.kind(node.device).kind) for node in state.cluster.nodes]
    devices = sum(count for count, kind in kinds if kind != "cpu")
    units = max(UNITS, devices)
    why = f", as many as there are devices, {devices}" if units > UNITS else ""
    return max(1, batch // units), f"{batch} samples in about {min(units, batch)} messages{why}"


def chunk_of(graph: Graph) -> tuple[int, str]:
    """Samples a chunk of the exact mode, and why. Depends on the graph only, never on a cluster:
    two plans of one graph must add the same chunks."""
    part = batch_of(graph) // updates_of(graph)
    wanted = math.ceil(part / 4)
    chunk = next(n for n in range(wanted, part + 1) if part % n == 0)
    return chunk, f"{part} samples an update in {counted(part // chunk, 'chunk')}"
