"""Room for variance: how much more than its mean a part may have to do in a step.

A step's demand is a sum over many independent trajectories, so that it spreads by the square root
of their number. A part is given devices for the demand that 95 steps of 100 stay under.
"""

import math
from collections.abc import Mapping
from typing import Any

from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import Index, agent_of, attribute, flow_order, index
from flowgraph.passes.demand import batch_of, games_of, used_agents
from flowgraph.passes.state import State
from flowgraph.runtime.policy.step_time import expected

QUANTILE = 1.645
"""Standard deviations above the mean that 95 % of a normal distribution stay under."""


def headrooms(state: State) -> Mapping[str, float]:
    """Factor on the mean seconds, by group; 1.0 where no spread is declared or measured."""
    at = index(state.graph)
    found: dict[str, float] = {}
    for agent in used_agents(state.graph):
        factor = 1.0 + QUANTILE * _spread(state, agent)
        found[f"{agent.name}.engine"] = factor
        for train in state.graph.by_op("train"):
            ancestors = at.ancestors(train)
            read = {name for stage in (*ancestors, train) for name in stage.inputs}
            games = [s for s in ancestors if s.op == "episodes"]
            if any(agent_of(s, o) == agent.name for s in games for o in s.outputs if o in read):
                part = f"{train.modules[0]}.gang"
                found[part] = max(factor, found.get(part, 1.0))
    return found


def deviation(value: Any) -> float:
    """Relative standard deviation of an expectation: a number has none, a spread states it."""
    if not isinstance(value, Mapping) or not value.get("mean"):
        return 0.0
    if "spread" in value:
        return float(value["spread"])
    tail = float(value.get("p95", value["mean"])) / float(value["mean"])
    return max(0.0, (tail - 1.0) / QUANTILE)


def length_spreads(at: Index) -> Mapping[str, float]:
    """By stream, the relative standard deviation of a record's tokens; streams of one length, or
    of which nothing is told, are not in it."""
    found: dict[str, float] = {}
    for stage in flow_order(at)[0]:
        for output in stage.outputs:
            told = _told_spread(at, stage, output)
            known = [told, *(found.get(name, 0.0) for name in stage.inputs)]
            if spread := next((one for one in known if one > 0), 0.0):
                found[output] = spread
    return found


def _told_spread(at: Index, stage: Stage, output: str) -> float:
    """What the stage itself says of the lengths that it makes."""
    if stage.op == "source":
        told = attribute(stage, "expect") or {}
        dims = [d for field in at.streams[output].type.fields for d in field.ragged[:1]]
        return deviation(told.get("tokens" if "tokens" in dims else next(iter(dims), "")))
    agent = at.agents.get(agent_of(stage, output)) if stage.op == "episodes" else None
    if agent is None:
        return 0.0
    parts = [(name, expected(agent.expect, name, 0.0)) for name in ("prompt", "response")]
    total = sum(mean for _, mean in parts)
    squares = [(deviation(agent.expect.get(name)) * mean) ** 2 for name, mean in parts]
    return math.sqrt(sum(squares)) / total if total > 0 else 0.0


def _spread(state: State, agent: Agent) -> float:
    """Of a step's tokens of the agent."""
    expect = agent.expect
    one = math.hypot(
        deviation(expect.get("calls", expect.get("mean"))), deviation(expect.get("response"))
    )
    tries = sum(attribute(stage, "trajectories") for stage in games_of(state.graph, agent))
    return one / math.sqrt(max(1, batch_of(state.graph) * tries))
