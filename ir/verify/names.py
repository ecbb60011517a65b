"""Rules of the graph's shape: names, edges, and the order in which data flows."""

import re
from collections.abc import Iterator

from flowgraph.ir.index import Index, flow_order
from flowgraph.ir.verify.faults import Declared, Faults, GraphRule, fault, nearest, repeated, told

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
                repr(re.sub(r"[^A-Za-z0-9_.-]+", "-", thing.name).lstrip("-.0123456789") or "a"),
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


def outputs_are_declared(at: Index) -> Faults:
    """What a stage makes is declared as a stream."""
    for stage in at.graph.stages:
        for output in stage.outputs:
            if output not in at.streams:
                yield fault(
                    stage,
                    f"stream {output!r} to be declared",
                    "no such stream",
                    nearest(output, at.streams),
                    term=output,
                )


def outputs_are_listed_once(at: Index) -> Faults:
    """A stage makes each of its outputs once."""
    for stage in at.graph.stages:
        for output in repeated(stage.outputs):
            yield fault(
                stage, f"output {output!r} once", "it twice", f"one {output!r}", term=output
            )


def streams_are_made_once(at: Index) -> Faults:
    """A stream is among the outputs of one stage."""
    makers: dict[str, str] = {}
    for stage in at.graph.stages:
        for output in stage.outputs:
            other = makers.setdefault(output, stage.name)
            if other != stage.name:
                yield fault(
                    stage,
                    f"stream {output!r} to be made once",
                    f"{other!r} making it too",
                    "a name of its own for the output of one of them",
                    term=output,
                )


def kinds_of_streams_are_known(at: Index) -> Faults:
    """A stream holds data, gradients or weights."""
    for stream in at.graph.streams:
        if stream.kind not in KINDS:
            yield fault(
                stream,
                f"a kind of {', '.join(KINDS)}",
                repr(stream.kind),
                nearest(stream.kind, KINDS),
                term="kind",
            )


def producers_exist(at: Index) -> Faults:
    """A stream names the stage that makes it."""
    for stream in at.graph.streams:
        if stream.producer not in at.stages:
            yield fault(
                stream,
                "a producer",
                f"{stream.producer!r}, which is no stage",
                nearest(stream.producer, at.stages),
                term="producer",
            )


def producers_make_their_streams(at: Index) -> Faults:
    """A data stream is among the outputs of the stage that it names as its producer."""
    makers = {name: stage.name for stage in at.graph.stages for name in stage.outputs}
    for stream in at.graph.streams:
        maker = makers.get(stream.name)
        if stream.kind == "data" and maker != stream.producer:
            yield fault(
                stream,
                f"to be an output of its producer {stream.producer!r}",
                "no such output",
                f"producer={maker!r}, which makes it" if maker else f"{stream.name!r} there",
                term="producer",
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


NAME_RULES: tuple[GraphRule, ...] = (
    names_are_legal,
    names_are_unique,
    outputs_are_declared,
    outputs_are_listed_once,
    streams_are_made_once,
    kinds_of_streams_are_known,
    producers_exist,
    producers_make_their_streams,
    inputs_exist,
    there_is_no_cycle,
    streams_are_read,
)
"""In this order: a rule may rest on those before it."""
