"""What differs between two plans, in sentences, from the graph down to the channels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from flowgraph.inspect.edges import Way
from flowgraph.inspect.facts import Facts
from flowgraph.inspect.parts import Part
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Agent, Graph, Module, Stage, Stream
from flowgraph.ir.location import UNKNOWN
from flowgraph.ir.plan import Plan
from flowgraph.passes.words import counted, seconds_text, size_text

T = TypeVar("T")

SAME = 1e-9
"""Share by which two predicted times may differ and be told as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """about: `graph`, `cluster`, `step`, `module`, `staleness`, `pins`, `schedule`, `channels`, ...

    subject: whose; said: the sentence. before, after: the values that it tells of, as plain data;
    None where there is none.
    """

    about: str
    subject: str
    said: str
    before: Any = None
    after: Any = None


def differences(before: Facts, after: Facts) -> tuple[Difference, ...]:
    """Empty only for plans that do the same: whatever no sentence tells of is named at the end."""
    found = [
        *_graph(before.plan.graph, after.plan.graph),
        *_cluster(before.plan.cluster, after.plan.cluster),
        *_step(before, after),
        *_parts(before, after),
        *_staleness(before, after),
        *_named("pins", "pin", dict(before.pins), dict(after.pins)),
        *_named("schedule", "schedule", asdict(before.plan.schedule), asdict(after.plan.schedule)),
        *_channels(before, after),
    ]
    if found:
        return tuple(found)
    return tuple(_rest(before.plan, after.plan))


def _graph(before: Graph, after: Graph) -> Iterator[Difference]:
    for name in ("name", "steps", "seed"):
        yield from _changed("graph", name, getattr(before, name), getattr(after, name))
    yield from _named("graph", "setting", before.settings, after.settings)
    kinds: tuple[tuple[str, Callable[[Graph], tuple[Any, ...]]], ...] = (
        ("module", lambda graph: graph.modules),
        ("agent", lambda graph: graph.agents),
        ("stage", lambda graph: graph.stages),
        ("stream", lambda graph: graph.streams),
    )
    for kind, of in kinds:
        old = {thing.name: thing for thing in of(before)}
        new = {thing.name: thing for thing in of(after)}
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _thing(kind, old.get(name), new.get(name))


def _thing(kind: str, old: Any, new: Any) -> Iterator[Difference]:
    """A stage, stream, module or agent that is on one side only, or not the same on both."""
    if old is None or new is None:
        name, where = (new or old).name, "new" if old is None else "gone"
        yield Difference(about="graph", subject=name, said=f"{kind} {name} is {where}")
        return
    for name, was, now in _fields(old, new):
        label = f"{kind} {old.name}: {name}"
        yield Difference(
            about="graph",
            subject=old.name,
            said=f"{label} {_value(was)} -> {_value(now)}",
            before=_plain(was),
            after=_plain(now),
        )


def _fields(
    old: Stage | Stream | Module | Agent, new: Stage | Stream | Module | Agent
) -> Iterator[tuple[str, Any, Any]]:
    """Fields that differ, where one was declared aside; of mappings the keys that do."""
    for field in fields(old):
        was, now = getattr(old, field.name), getattr(new, field.name)
        if field.name == "at" or was == now:
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            for key in sorted({*was, *now}):
                if was.get(key) != now.get(key):
                    yield key, was.get(key), now.get(key)
        elif field.name == "function" and was and now and (str(was) == str(now)):
            yield f"the code of {was}", was.digest[:8], now.digest[:8]
        else:
            yield field.name, was, now


def _cluster(before: Cluster, after: Cluster) -> Iterator[Difference]:
    if before == after:
        return
    yield from _changed("cluster", "cluster", before.name, after.name)
    counts: tuple[tuple[str, Callable[[Cluster], int]], ...] = (
        ("node", lambda cluster: len(cluster.nodes)),
        ("device", lambda cluster: cluster.total_devices),
        ("core", lambda cluster: sum(node.cores for node in cluster.nodes)),
    )
    same = True
    for what, count in counts:
        was, now = count(before), count(after)
        if was != now:
            same = False
            yield Difference(
                about="cluster",
                subject=what,
                said=f"the cluster has {counted(now, what)} instead of {was}",
                before=was,
                after=now,
            )
    if same and replace(before, name=after.name) != after:
        yield Difference(
            about="cluster",
            subject=after.name,
            said="as many nodes and devices as before are described differently",
        )


def _step(before: Facts, after: Facts) -> Iterator[Difference]:
    was, now = before.step_s, after.step_s
    if abs(now - was) > SAME * max(was, now):
        change = f" ({now / was - 1:+.1%})" if was else ""
        yield Difference(
            about="step",
            subject="step_s",
            said=f"a step is predicted to take {seconds_text(now)} instead of "
            f"{seconds_text(was)}{change}",
            before=was,
            after=now,
        )
    if before.path.at != after.path.at:
        yield Difference(
            about="step",
            subject="limit",
            said=f"{after.path.at} sets this time instead of {before.path.at}",
            before=before.path.at,
            after=after.path.at,
        )
    yield from _changed("step", "devices used", before.devices_used, after.devices_used)
    yield from _changed("step", "predicted from", before.basis, after.basis)


def _parts(before: Facts, after: Facts) -> Iterator[Difference]:
    old = {part.name: part for part in before.parts}
    new = {part.name: part for part in after.parts}
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            where = "new" if was is None else "gone"
            yield Difference(about="module", subject=name, said=f"{name} is {where}")
            continue
        yield from _told("module", name, name, _PART, was, now)


def _processes(part: Part) -> str:
    count = counted(part.processes, "process", "processes")
    return f"{count} laid out as {part.layout}" if part.kind == "gang" else part.layout


_PART: tuple[tuple[str, Callable[[Part], str]], ...] = (
    ("runs as", _processes),
    ("lies on", lambda part: part.where or "nothing"),
    ("shares devices:", lambda part: part.turn or "with nobody"),
    ("holds", lambda part: f"{size_text(part.memory_bytes)} a process"),
    ("works", lambda part: f"{seconds_text(part.seconds)} a step"),
)


def _staleness(before: Facts, after: Facts) -> Iterator[Difference]:
    old = {(edge.module, edge.train): edge.behind for edge in before.edges}
    for edge in after.edges:
        was = old.get((edge.module, edge.train), edge.behind)
        if was != edge.behind:
            yield Difference(
                about="staleness",
                subject=edge.module,
                said=f"{edge.module} is trained by {edge.train} on samples at most "
                f"{counted(edge.behind, 'update')} behind instead of {was}",
                before=was,
                after=edge.behind,
            )


def _channels(before: Facts, after: Facts) -> Iterator[Difference]:
    yield from _changed(
        "channels",
        "records in a worker's pool: at most",
        before.plan.pool_bytes,
        after.plan.pool_bytes,
        size_text,
    )
    old = {way.stream: way for way in before.ways}
    new = {way.stream: way for way in after.ways}
    for name in [*old, *(name for name in new if name not in old)]:
        was, now = old.get(name), new.get(name)
        if was is None or now is None:
            where = "crosses between processes now" if was is None else "crosses no longer"
            yield Difference(about="channels", subject=name, said=f"stream {name} {where}")
        else:
            yield from _told("channels", name, f"stream {name}", _WAY, was, now)


def _budget(way: Way) -> str:
    return f"{size_text(way.capacity_bytes)} and {counted(way.capacity_records, 'record')}"


_WAY: tuple[tuple[str, Callable[[Way], str]], ...] = (
    ("goes by", lambda way: way.transport),
    ("holds at most", _budget),
)


def _told(
    about: str, subject: str, name: str, told: Sequence[tuple[str, Callable[[T], str]]], *sides: T
) -> Iterator[Difference]:
    """What is shown of a thing and differs between its two sides, before and after."""
    for label, shown in told:
        was, now = map(shown, sides)
        if was != now:
            said = f"{name} {label} {now} instead of {was}"
            yield Difference(about=about, subject=subject, said=said, before=was, after=now)


def _rest(before: Plan, after: Plan) -> Iterator[Difference]:
    """What none of the sentences tells of."""
    for field in fields(before):
        was, now = _unplaced(getattr(before, field.name)), _unplaced(getattr(after, field.name))
        if was != now:
            yield Difference(
                about="plan", subject=field.name, said=f"{field.name} of the plan differ"
            )


def _unplaced(value: Any) -> Any:
    """Without what is no part of what a plan does: where its graph's files lie, and lines."""
    if not isinstance(value, Graph):
        return value
    return replace(
        value,
        root="",
        cluster="",
        modules=tuple(replace(module, at=UNKNOWN) for module in value.modules),
        agents=tuple(replace(agent, at=UNKNOWN) for agent in value.agents),
        stages=tuple(replace(stage, at=UNKNOWN) for stage in value.stages),
        streams=tuple(replace(stream, at=UNKNOWN) for stream in value.streams),
    )


def _named(
    about: str, what: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    """Values by name on either side."""
    for name in sorted({*before, *after}):
        if name not in after:
            said = f"{what} {name} is gone"
            was = _plain(before[name])
            yield Difference(about=about, subject=f"{what} {name}", said=said, before=was)
        elif name not in before:
            said, now = f"{what} {name} is new: {_value(after[name])}", _plain(after[name])
            yield Difference(about=about, subject=f"{what} {name}", said=said, after=now)
        else:
            yield from _changed(about, f"{what} {name}", before[name], after[name])


def _changed(
    about: str, name: str, was: Any, now: Any, shown: Callable[[Any], str] | None = None
) -> Iterator[Difference]:
    if was == now:
        return
    told = shown or _value
    yield Difference(
        about=about,
        subject=name,
        said=f"{name} {told(now)} instead of {told(was)}",
        before=_plain(was),
        after=_plain(now),
    )


def _value(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)


def _plain(value: Any) -> Any:
    """As JSON holds it: what is not plain is told as text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
