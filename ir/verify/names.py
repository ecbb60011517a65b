"""Rules of the whole graph: names, edges, and the order in which data flows."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowgraph.ir.errors import GraphError
from flowgraph.ir.index import Index, attribute, flow_order
from flowgraph.ir.verify.faults import Declared, Faults, GraphRule, fault, nearest, told

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
KINDS = ("data", "gradient", "weights")


def _things(at: Index) -> Iterator[Declared]:
    graph = at.graph
    yield from graph.modules
    yield from graph.agents
    yield from graph.stages
    yield from graph.streams


def names_are_legal(at: Index) -> Faults:
    """Names are letters, digits, `.`, `-` and `_`: they become file names, pins and arguments."""
    for thing in _things(at):
        if not _NAME.fullmatch(thing.name):
            yield fault(
                thing,
                "a name of letters, digits, '.', '-' and '_', a letter first",
                repr(thing.name),
            )


def names_are_unique(at: Index) -> Faults:
    """Stages, streams, modules and agents each have names of their own."""
    first: dict[tuple[type, str], Declared] = {}
    for thing in _things(at):
        other = first.setdefault((type(thing), thing.name), thing)
        if other is not thing:
            yield told(
                thing, f"is declared twice, first at {other.at}", "give one of them another name"
            )


def streams_are_made_once(at: Index) -> Faults:
    """A stream is among the outputs of one stage, the one that it names as its producer."""
    makers: dict[str, str] = {}
    for stage in at.graph.stages:
        for output in stage.outputs:
            other = makers.setdefault(output, stage.name)
            if other != stage.name:
                yield fault(stage, f"stream {output!r} to be made once", f"{other!r} making it too")
            elif stage.outputs.count(output) > 1:
                yield fault(stage, f"output {output!r} once", "it twice")
            elif output not in at.streams:
                yield fault(stage, f"stream {output!r} to be declared", "no such stream")
    for stream in at.graph.streams:
        if stream.kind not in KINDS:
            yield fault(stream, f"a kind of {', '.join(KINDS)}", repr(stream.kind), term="kind")
        elif stream.producer not in at.stages:
            hint = nearest(stream.producer, at.stages)
            yield fault(stream, "a producer", f"{stream.producer!r}, which is no stage", hint)
        elif stream.kind == "data" and makers.get(stream.name) != stream.producer:
            yield fault(
                stream, f"to be an output of its producer {stream.producer!r}", "no such output"
            )


def inputs_exist(at: Index) -> Faults:
    """A stage reads declared data streams."""
    data = [stream.name for stream in at.graph.streams if stream.kind == "data"]
    known = set(data)
    for stage in at.graph.stages:
        for name in stage.inputs:
            if name not in known:
                yield fault(
                    stage,
                    "declared data streams to read",
                    repr(name),
                    nearest(name, data),
                    term=name,
                )


def there_is_no_cycle(at: Index) -> Faults:
    """Data flows one way; what goes back are gradients and weights, which are no inputs."""
    _, left = flow_order(at)
    if not left:
        return
    cycle = _cycle(at, {stage.name for stage in left})
    way = " -> ".join([*cycle, cycle[0]])
    yield told(
        at.stages[cycle[0]],
        f"is on a cycle, which can never start: {way}",
        f"break it where {cycle[0]!r} reads what {cycle[-1]!r} makes",
    )


def _cycle(at: Index, inside: set[str]) -> list[str]:
    """One cycle among the stages that no order was found for, starting at the first declared."""
    name = next(stage.name for stage in at.graph.stages if stage.name in inside)
    seen: list[str] = []
    # Each stage that is left reads another one that is left, so walking back must meet itself.
    while name not in seen:
        seen.append(name)
        name = next(p.name for p in at.parents(at.stages[name]) if p.name in inside)
    cycle = seen[seen.index(name) :][::-1]
    first = min(range(len(cycle)), key=lambda i: _rank(at, cycle[i]))
    return cycle[first:] + cycle[:first]


def _rank(at: Index, name: str) -> int:
    return next(i for i, stage in enumerate(at.graph.stages) if stage.name == name)


def streams_are_read(at: Index) -> Faults:
    """A data stream has a reader."""
    for stream in at.graph.streams:
        if stream.kind == "data" and not at.consumers.get(stream.name):
            yield told(
                stream,
                f"nothing reads it (made by stage {stream.producer!r})",
                "train on it, hand it to a sink, or leave the stage out",
            )


def modules_start_as_modules(at: Index) -> Faults:
    """A module starts with its own initial weights, or with those of one made in the same way."""
    for module in at.graph.modules:
        if not module.starts_as:
            continue
        other = at.modules.get(module.starts_as)
        if other is None:
            hint = nearest(module.starts_as, at.modules)
            yield fault(module, "to start as a declared module", repr(module.starts_as), hint)
        elif other.starts_as or (other.factory, other.dtype) != (module.factory, module.dtype):
            yield fault(
                module,
                f"the factory, parameters and dtype of {other.name!r}, as which it starts",
                "others",
                term="starts_as",
            )


def agents_are_legal(at: Index) -> Faults:
    """An agent's module exists, and agents come after one another in some order."""
    for agent in at.graph.agents:
        if agent.module not in at.modules:
            hint = nearest(agent.module, at.modules)
            yield fault(agent, "a declared module", repr(agent.module), hint, term=agent.module)
        for other in agent.after:
            if other not in at.agents:
                hint = nearest(other, at.agents)
                yield fault(agent, "to come after declared agents", repr(other), hint, term=other)
    yield from _agents_in_circle(at)


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
                yield fault(module, f"{name} >= 1 or null", repr(value), term=name)


def expectations_are_numbers(at: Index) -> Faults:
    """What is expected of agents, filters and unnests is a number above 0 or has such a mean."""
    for agent in at.graph.agents:
        for name, value in agent.expect.items():
            mean = value.get("mean") if isinstance(value, Mapping) else value
            if not _is_positive(mean):
                yield fault(agent, f"{name} to be a number above 0", repr(value), term=name)
        length = agent.sampling.get("max_length")
        if length is not None and (type(length) is not int or length < 1):
            yield fault(agent, "max_length >= 1", repr(length), term="max_length")
    for stage in at.graph.stages:
        if stage.op in ("filter", "unnest") and not _is_positive(attribute(stage, "expect")):
            got = repr(attribute(stage, "expect"))
            yield fault(stage, "expect to be a number above 0", got, term="expect")


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf


def _agents_in_circle(at: Index) -> Faults:
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
            "leave out the `after` of the agent that may come first",
        )


def graph_has_a_trainer(at: Index) -> Faults:
    """There is a train stage, whose steps are the run's, and at least one step."""
    if not at.graph.by_op("train"):
        yield GraphError(
            f"graph {at.graph.name!r}: expects a train stage, got none",
            hint=".train(module, loss=..., batch=...) on the stream to learn from",
        )
    if at.graph.steps < 1:
        yield GraphError(f"graph {at.graph.name!r}: expects steps >= 1, got {at.graph.steps}")


GRAPH_RULES: tuple[GraphRule, ...] = (
    names_are_legal,
    names_are_unique,
    streams_are_made_once,
    inputs_exist,
    there_is_no_cycle,
    streams_are_read,
    modules_start_as_modules,
    agents_are_legal,
    descriptions_are_numbers,
    expectations_are_numbers,
    graph_has_a_trainer,
)
"""In this order: a rule may rest on those before it."""
