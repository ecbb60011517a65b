"""Room for variance: how much more than its mean a part may have to do in a step.

A step's demand is a sum over many independent trajectories, so that it spreads by the square root
of their number. A part is given devices for the demand that 95 steps of 100 stay under.
"""

import math
from collections.abc import Mapping
from typing import Any

from flowgraph.ir.graph import Agent
from flowgraph.ir.index import agent_of, attribute, index
from flowgraph.passes.demand import batch_of, games_of, used_agents
from flowgraph.passes.state import State

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


def _spread(state: State, agent: Agent) -> float:
    """Of a step's tokens of the agent."""
    expect = agent.expect
    one = math.hypot(
        deviation(expect.get("calls", expect.get("mean"))), deviation(expect.get("response"))
    )
    tries = sum(attribute(stage, "trajectories") for stage in games_of(state.graph, agent))
    return one / math.sqrt(max(1, batch_of(state.graph) * tries))
