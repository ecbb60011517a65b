"""Rules of what a graph declares beside its stages: modules, agents, what is expected of them."""

import math
from collections.abc import Mapping
from typing import Any

from flowgraph.ir.errors import GraphError
from flowgraph.ir.index import Index, attribute
from flowgraph.ir.verify.faults import Faults, GraphRule, fault, nearest, told


def beginnings_exist(at: Index) -> Faults:
    """A module starts with its own initial weights, or with those of a declared one."""
    for module in at.graph.modules:
        if module.starts_as and module.starts_as not in at.modules:
            yield fault(
                module,
                "to start as a declared module",
                repr(module.starts_as),
                nearest(module.starts_as, at.modules),
                term="starts_as",
            )


def beginnings_are_alike(at: Index) -> Faults:
    """Modules that start alike are made in the same way, and the first one starts as itself."""
    for module in at.graph.modules:
        other = at.modules.get(module.starts_as)
        if other is None:
            continue
        if other.starts_as:
            yield fault(
                module,
                "to start as a module that starts as itself",
                f"{other.name!r}, which starts as {other.starts_as!r}",
                f"starts_as={other.starts_as!r}",
                term="starts_as",
            )
        elif (other.factory, other.dtype) != (module.factory, module.dtype):
            yield fault(
                module,
                f"the factory, parameters and dtype of {other.name!r}, as which it starts",
                "others",
                f"make both in the same way, or leave starts_as={other.name!r} out",
                term="starts_as",
            )


def agents_have_modules(at: Index) -> Faults:
    """An agent's module exists."""
    for agent in at.graph.agents:
        if agent.module not in at.modules:
            hint = nearest(agent.module, at.modules)
            yield fault(agent, "a declared module", repr(agent.module), hint, term=agent.module)


def agents_follow_agents(at: Index) -> Faults:
    """What an agent comes after is an agent."""
    for agent in at.graph.agents:
        for other in agent.after:
            if other not in at.agents:
                hint = nearest(other, at.agents)
                yield fault(agent, "to come after declared agents", repr(other), hint, term=other)


def agents_come_in_some_order(at: Index) -> Faults:
    """Of agents that come after one another, some come first."""
    waiting = {name: set(agent.after) & set(at.agents) for name, agent in at.agents.items()}
    while free := [name for name, after in waiting.items() if not after]:
        for name in free:
            del waiting[name]
        for after in waiting.values():
            after.difference_update(free)
    if waiting:
        names = [agent.name for agent in at.graph.agents if agent.name in waiting]
        yield told(
            at.agents[names[0]],
            f"`after` goes in a circle among {', '.join(map(repr, names))}",
            f"leave out the `after` of the agent that may come first, for instance {names[0]!r}",
            term="after",
        )


SIZES = (
    "parameters",
    "layers",
    "width",
    "heads",
    "kv_heads",
    "head_width",
    "hidden",
    "vocab",
    "max_length",
)
"""What the cost model reads of a module's description: whole numbers, or null when unknown."""


def descriptions_are_numbers(at: Index) -> Faults:
    """A module is described by whole numbers above 0; what is not known is left out or null."""
    for module in at.graph.modules:
        for name in SIZES:
            value = module.description.get(name)
            if value is not None and (type(value) is not int or value < 1):
                yield fault(
                    module, f"{name} >= 1 or null", repr(value), f"leave {name} out", term=name
                )


def expectations_are_numbers(at: Index) -> Faults:
    """What is expected of an agent's calls is a number above 0 or has such a mean."""
    for agent in at.graph.agents:
        for name, value in agent.expect.items():
            mean = value.get("mean") if isinstance(value, Mapping) else value
            if not _is_positive(mean):
                yield fault(
                    agent, f"{name} to be a number above 0", repr(value), f"{name}=1", term=name
                )


def rows_have_a_length(at: Index) -> Faults:
    """The longest row of an agent has at least a token."""
    for agent in at.graph.agents:
        length = agent.sampling.get("max_length")
        if length is not None and (type(length) is not int or length < 1):
            hint = "max_length=512, or none for the model's own"
            yield fault(agent, "max_length >= 1", repr(length), hint, term="max_length")


def shares_are_numbers(at: Index) -> Faults:
    """What a filter keeps and an unnest makes, on average, is a number above 0."""
    for stage in at.graph.stages:
        if stage.op in ("filter", "unnest") and not _is_positive(attribute(stage, "expect")):
            got = repr(attribute(stage, "expect"))
            yield fault(stage, "expect to be a number above 0", got, "expect=1.0", term="expect")


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf


def graph_has_a_trainer(at: Index) -> Faults:
    """There is a train stage, whose steps are the run's."""
    if not at.graph.by_op("train"):
        yield GraphError(
            f"graph {at.graph.name!r}: expects a train stage, got none",
            hint=".train(module, loss=..., batch=...) on the stream to learn from",
            node=f'graph "{at.graph.name}"',
        )


def there_are_steps(at: Index) -> Faults:
    """A run takes at least one step."""
    if at.graph.steps < 1:
        yield GraphError(
            f"graph {at.graph.name!r}: expects steps >= 1, got {at.graph.steps}",
            hint="steps=1",
            node=f'graph "{at.graph.name}"',
            term="steps",
        )


DECLARED_RULES: tuple[GraphRule, ...] = (
    beginnings_exist,
    beginnings_are_alike,
    agents_have_modules,
    agents_follow_agents,
    agents_come_in_some_order,
    descriptions_are_numbers,
    expectations_are_numbers,
    rows_have_a_length,
    shares_are_numbers,
    graph_has_a_trainer,
    there_are_steps,
)
"""In this order: a rule may rest on those before it."""
