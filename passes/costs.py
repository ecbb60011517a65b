"""Measured numbers that replace estimates and expectations: plain data, as `profile` writes them.

    {"device": "core",
     "values": {"solver.engine.iteration_s": {"value": 2.1e-3, "spread": 0.05, "count": 40},
                "solver.calls": {"value": 1.31, "spread": 0.4, "count": 128}}}

`value` is a mean (0 of a time that was too short to be seen), `spread` the standard deviation of
single measurements as a share of it, `count` how many there were. Times hold for the kind of device
that they were measured on, and are left out for others; what data decides (calls, tokens, shares)
holds anywhere.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Agent, Graph, Module, Stage

HOST = ("sample_s",)
ENGINE = ("prefill_token_s", "iteration_s", "row_s")
GANG = ("token_s", "item_s")
AGENT = ("calls", "prompt", "response")
MODULE = ("parameters", "layers", "width", "vocab")


@dataclass(frozen=True, slots=True)
class Measure:
    """spread: relative standard deviation of a single measurement."""

    value: float
    spread: float = 0.0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {100 * self.spread:.0f} % of {self.count}"


@dataclass(frozen=True, slots=True)
class Costs:
    """By "subject.quantity". device: kind that the times were measured on."""

    device: str = ""
    values: Mapping[str, Measure] = field(default_factory=dict)

    def get(self, subject: str, quantity: str, kind: str) -> Measure | None:
        """The measured time on that kind of device, or None."""
        return self.values.get(f"{subject}.{quantity}") if kind == self.device else None


def measurable(graph: Graph) -> dict[str, str]:
    """What may be measured of this graph, and what for: `time` or `data`."""
    known = {f"host.{name}": "time" for name in HOST}
    for agent in graph.agents:
        known |= {f"{agent.name}.engine.{name}": "time" for name in ENGINE}
        known |= {f"{agent.name}.{name}": "data" for name in AGENT}
    for module in graph.modules:
        known |= {f"{module.name}.gang.{name}": "time" for name in GANG}
        known |= {f"{module.name}.{name}": "data" for name in MODULE}
    for stage in (*graph.by_op("filter"), *graph.by_op("unnest")):
        known[f"{stage.name}.expect"] = "data"
    known |= {f"{stage.name}.size": "data" for stage in graph.by_op("source")}
    return known


def read_costs(graph: Graph, given: Mapping[str, Any]) -> Costs:
    """Checked costs. ConfigurationError for a key that is not there and for a value out of kind."""
    for key in given:
        if key not in ("device", "values"):
            raise ConfigurationError(f"costs: expects device and values, got {key!r}")
    device, values = given.get("device", ""), given.get("values", {})
    if not isinstance(device, str) or not isinstance(values, Mapping):
        raise ConfigurationError("costs: expects device, the name of a kind, and a map of values")
    known = measurable(graph)
    found = {}
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"costs: nothing of this graph is called {name!r}",
                hint=f"{near[0]}, or profile this graph again",
            )
        found[name] = _measure(name, value, known[name] == "time")
    return Costs(device, found)


def _measure(name: str, value: Any, may_be_none: bool) -> Measure:
    """may_be_none: a time may be 0, what data decides may not."""
    fields = value if isinstance(value, Mapping) else {"value": value}
    if unknown := [key for key in fields if key not in ("value", "spread", "count")]:
        raise ConfigurationError(f"costs: {name}: expects value, spread, count, got {unknown[0]!r}")
    number, spread, count = fields.get("value"), fields.get("spread", 0.0), fields.get("count", 1)
    least = {"spread": 0.0, "count": 1}
    for key, one in (("value", number), ("spread", spread), ("count", count)):
        if (
            isinstance(one, bool)
            or not isinstance(one, int | float)
            or not least.get(key, 0.0) <= one < math.inf
            or (key == "value" and one == 0 and not may_be_none)
        ):
            raise ConfigurationError(f"costs: {name}: expects a {key} above 0, got {one!r}")
    return Measure(float(number or 0.0), float(spread), int(count))


def with_measured(graph: Graph, costs: Costs) -> Graph:
    """The graph with its expectations replaced by what was measured of the data."""
    values = costs.values
    if not values:
        return graph
    return replace(
        graph,
        agents=tuple(_agent(agent, values) for agent in graph.agents),
        modules=tuple(_module(module, values) for module in graph.modules),
        stages=tuple(_stage(stage, values) for stage in graph.stages),
    )


def _agent(agent: Agent, values: Mapping[str, Measure]) -> Agent:
    found = {
        name: values[f"{agent.name}.{name}"] for name in AGENT if f"{agent.name}.{name}" in values
    }
    if not found:
        return agent
    expect = {k: v for k, v in agent.expect.items() if not (k == "mean" and "calls" in found)}
    measured = {name: {"mean": m.value, "spread": m.spread} for name, m in found.items()}
    return replace(agent, expect={**expect, **measured})


def _module(module: Module, values: Mapping[str, Measure]) -> Module:
    counted = {
        name: int(values[f"{module.name}.{name}"].value)
        for name in MODULE
        if f"{module.name}.{name}" in values
    }
    return replace(module, description={**module.description, **counted}) if counted else module


def _stage(stage: Stage, values: Mapping[str, Measure]) -> Stage:
    share = values.get(f"{stage.name}.expect")
    if share is None or stage.op not in ("filter", "unnest"):
        return stage
    return replace(stage, attributes={**stage.attributes, "expect": share.value})
