"""Counts that must be reached: what refuses a graph whose groups or steps could never fill."""

import math
from collections.abc import Mapping
from fractions import Fraction

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Agent, Stage
from flowgraph.ir.index import Index, agent_of, attribute
from flowgraph.passes.costs import Costs

Rates = Mapping[str, Fraction]


def check_group(at: Index, stage: Stage, rates: Rates, calls: Mapping[str, Fraction]) -> None:
    """A group's rows share a sample, so the rows of one sample must fill whole groups.

    calls: by agent whose calls a trajectory are declared as a number, not as a distribution.
    """
    size = attribute(stage, "size") if stage.op == "group" else 0
    if not size:
        return
    _check_refill(at, stage, size, rates)
    rows, by, why = rates[stage.inputs[0]], attribute(stage, "by"), "rows a sample"
    game, agent = _played(at, stage)
    if game and agent:
        if agent.name not in calls:
            return  # data decides, and the run checks it
        if "trajectory" in by:
            rows, why = rows / attribute(game, "trajectories"), "rows a trajectory"
        if "call" in by:
            rows, why = rows / calls[agent.name], f"rows a {' and '.join(by)}"
    if rows % size == 0:
        return
    raise GraphError(
        f"stage {stage.name!r}: expects rows in groups of {size}, got {number(rows)} {why}, which "
        f"leaves {number(rows % size)} over ({number(rows)} = {rows // size} x {size} + "
        f"{number(rows % size)}; `batch` counts source samples, not rows)",
        at=stage.at,
        hint=_group_hint(rows, size),
        node=f'stage "{stage.name}"',
        term=f"size: {size}",
    )


def _check_refill(at: Index, stage: Stage, size: int, rates: Rates) -> None:
    """Nothing between the rows' maker and the group may leave rows out."""
    stream = stage.inputs[0]
    while (made := at.producer(stream)) and made.inputs:
        if made.op == "filter" and at.streams[made.inputs[0]].type.key != ("sample",):
            rows = number(rates[made.inputs[0]])
            raise GraphError(
                f"stage {stage.name!r}: {rows} rows a sample in, fewer than {rows} out, no refill: "
                f"filter {made.name!r} leaves rows out and nothing takes their place, so that "
                f"groups of {size} would wait for rows that never come",
                at=stage.at,
                hint="leave `size` out, or filter samples before their rows are made",
                node=f'stage "{stage.name}"',
                term=f"size: {size}",
            )
        stream = made.inputs[0]


def check_join(at: Index, stage: Stage) -> None:
    """Samples of several sources pair up by position, rows by key: none may leave out what others
    keep."""
    if stage.op != "join":
        return
    _check_partners(at, stage)
    ways = {name: _way(at, name) for name in stage.inputs}
    sources = {source for found, _ in ways.values() for source in found}
    kept = [filters for _, filters in ways.values()]
    if len(sources) < 2 or all(filters == kept[0] for filters in kept):
        return
    short = next(name for name, (_, filters) in ways.items() if filters)
    culprit = min(ways[short][1])
    raise GraphError(
        f"stage {stage.name!r}: N samples in, fewer than N out, no refill: filter {culprit!r} "
        f"leaves samples of {short!r} out, and their partners from "
        f"{', '.join(repr(s) for s in sorted(sources - ways[short][0]))} would wait for ever",
        at=stage.at,
        hint="filter what the join makes",
        node=f'stage "{stage.name}"',
        term=short,
    )


def _check_partners(at: Index, stage: Stage) -> None:
    """Each row of the first stream finds one of its key in the others: no filter took it away.

    A filter of samples decides membership, so that all streams of that source lack what it rejects.
    """
    first, *others = stage.inputs
    key = at.streams[first].type.key
    maker = at.producer(first)
    own = {s.name for s in (maker, *at.ancestors(maker))} if maker else set()
    for other in others:
        maker = at.producer(other)
        if maker is None or at.streams[other].type.key != key:
            continue
        for made in (maker, *at.ancestors(maker)):
            if made.op != "filter" or made.name in own:
                continue
            if at.streams[made.inputs[0]].type.key == ("sample",):
                continue
            raise GraphError(
                f"stage {stage.name!r}: N rows in, fewer than N out, no refill: filter "
                f"{made.name!r} leaves rows of {other!r} out, and rows of {first!r} would find "
                "none of their key",
                at=stage.at,
                hint="filter what the join makes, or what both read",
                node=f'stage "{stage.name}"',
                term=other,
            )


def _way(at: Index, stream: str) -> tuple[frozenset[str], frozenset[str]]:
    """(sources, filters) from which the stream's records come."""
    maker = at.producer(stream)
    if maker is None:
        return frozenset(), frozenset()
    before = (maker, *at.ancestors(maker))
    return (
        frozenset(s.name for s in before if s.op == "source"),
        frozenset(s.name for s in before if s.op == "filter"),
    )


def reachable_steps(
    at: Index, source: Stage, batch: int, asked: int, costs: Costs
) -> tuple[int, str] | None:
    """(steps, why) where the source's measured size ends the run before it has all its steps.

    Raises GraphError when not even the first step can be complete.
    """
    size = costs.values.get(f"{source.name}.size")
    policy = attribute(source, "at_end")
    if size is None:
        return None
    share = math.prod(
        attribute(s, "expect")
        for s in at.graph.by_op("filter")
        if source.name in _way(at, s.inputs[0])[0]
        and at.streams[s.inputs[0]].type.key == ("sample",)
    )
    left = int(size.value * share)
    if policy == "loop" and left >= 1:
        return None
    said = f"{size.value:g} samples" + (f", {share:g} of them kept" if share != 1 else "")
    if left < (batch if policy == "drop" else 1):
        raise GraphError(
            f"source {source.name!r}: {said}, and a step needs {batch}: with at_end={policy!r} no "
            "step is ever complete",
            at=source.at,
            hint=f'at_end="loop", or batch={max(1, left)}',
            node=f'stage "{source.name}"',
            term="at_end",
        )
    steps = left // batch if policy == "drop" else math.ceil(left / batch)
    if steps >= asked:
        return None
    return steps, f"{said} and at_end={policy!r} make no more steps of {batch}; {asked} asked"


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


def number(value: Fraction) -> str:
    """As a whole number where it is one."""
    return str(value) if value.denominator == 1 else f"{float(value):g}"
