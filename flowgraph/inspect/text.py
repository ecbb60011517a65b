"""A plan explained on a terminal, from the graph down to what a device more would change."""

from collections.abc import Callable, Iterator, Sequence

from flowgraph.inspect.edges import TrainingEdge
from flowgraph.inspect.facts import Facts
from flowgraph.inspect.neighbour_words import neighbour_words
from flowgraph.inspect.parts import Other, Part
from flowgraph.inspect.text_lines import labelled, table, wrapped
from flowgraph.inspect.text_picture import text_picture
from flowgraph.passes.words import counted, figure, listed, seconds_text, size_text

SAME = 1e-3
"""Share by which two times may differ and be told as equal."""

MOST_ROWS = 40
"""Rows of a table; a plan of thousands of streams is read as JSON."""


def told(facts: Facts, title: Callable[[str], str] = str.upper) -> str:
    """Text of at most 100 columns, long names aside; deterministic. title: how titles are shown."""
    sections = (
        ("", _headline(facts)),
        ("The graph, top to bottom", text_picture(facts.plan.graph).splitlines()),
        ("Where a step's time goes", list(_path(facts))),
        ("Who does what, and why so", list(_parts(facts))),
        ("How busy devices are, and their memory", list(_devices(facts))),
        ("Streams between processes, and their budgets", list(_ways(facts))),
        ("Which weights a step's samples come from", list(_edges(facts))),
        ("What may change during a run", list(_rooms(facts))),
        ("Pins", list(_pins(facts))),
        ("With one device more or fewer", list(_neighbours(facts))),
    )
    parts = [_section(title(head) if head else "", own) for head, own in sections if own]
    count = len(facts.plan.decisions)
    parts.append(f"All {count} decisions, pass by pass: add --decisions.")
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Sequence[str]) -> str:
    if not title:
        return "\n".join(lines)
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines)])


def _headline(facts: Facts) -> list[str]:
    plan = facts.plan
    schedule, cluster = plan.schedule, plan.cluster
    workers = sum(group.replicas for group in plan.groups)
    cores = sum(node.cores for node in cluster.nodes)
    fast = [node for node in cluster.nodes if cluster.kind(node.device).kind != "cpu"]
    have = counted(cores, "core")
    if fast:
        have = f"{counted(sum(node.devices for node in fast), 'device')} and {have}"
    used = f"; {facts.devices_used} of the devices are used" if fast else ""
    lines = [
        *wrapped(
            f"{plan.graph.name}, planned for {cluster.name}: "
            f"{counted(len(cluster.nodes), 'node')} with {have}{used}"
        ),
        "",
        *wrapped(
            f"A step takes {schedule.batch} samples through the graph and makes "
            f"{counted(schedule.updates, 'optimizer update')} of each trained module. It is "
            f"predicted to take {seconds_text(facts.step_s)} "
            f"({figure(facts.rate)} steps a second), {facts.basis}. "
            f"{counted(workers, 'worker process', 'worker processes')} and one orchestrator run it."
        ),
    ]
    lines += wrapped(schedule_words(facts))
    if facts.bound_s:
        lines += wrapped(bound_words(facts))
    return lines


def schedule_words(facts: Facts) -> str:
    schedule = facts.plan.schedule
    when = (
        "Training begins as soon as the first samples of a step are complete"
        if schedule.mode == "pipeline"
        else "Training begins when all samples of a step are complete"
    )
    ahead = counted(schedule.ahead, "step")
    return f"{when}; what needs no weights may be made {ahead} ahead."


def bound_words(facts: Facts) -> str:
    """How far the models' layouts are from the best ones, as far as was proved."""
    models = facts.models_s
    gap = 1 - facts.bound_s / models if models else 0.0
    if gap <= SAME:
        proved = "no layouts on this cluster bring that down, which is proved"
    else:
        proved = f"other layouts on this cluster could bring that down by {gap:.1%} at most"
    return f"The slowest model works {seconds_text(models)} of it; {proved}."


def _path(facts: Facts) -> Iterator[str]:
    yield from wrapped(f"{_capital(facts.path.why)}:")
    rows = [
        (
            seconds_text(leg.seconds),
            f"{leg.seconds / facts.step_s:.0%}",
            f"{leg.task}: {leg.what}" if leg.what else leg.task,
            leg.group,
        )
        for leg in facts.path.legs[:MOST_ROWS]
        if facts.step_s
    ]
    yield from table(("time", "share", "task", "done by"), rows, right=(0, 1))
    yield from _more(len(facts.path.legs))
    hidden = facts.hidden
    if hidden:
        shown = [f"{part.name} {seconds_text(part.seconds)}" for part in hidden[:8]]
        more = f" and {len(hidden) - 8} more" if len(hidden) > 8 else ""
        yield from wrapped(f"Hidden behind it: {', '.join(shown)}{more}.")


def _parts(facts: Facts) -> Iterator[str]:
    shared = all(facts.plan.cluster.kind(n.device).kind == "cpu" for n in facts.plan.cluster.nodes)
    yield "Places read node:devices."
    for part in facts.parts[:MOST_ROWS]:
        yield ""
        yield from wrapped(f"{part.name} {part.does}")
        for label, text in part_lines(part, shared=shared):
            yield from labelled(label, text)
    yield from _more(len(facts.parts))


def part_lines(part: Part, *, shared: bool) -> Iterator[tuple[str, str]]:
    """Labels and texts about one part. shared: the cluster has cores only."""
    yield "layout", _laid_out(part) + (" (pinned)" if part.pinned else "")
    if part.where:
        yield "on", part.where
    if part.why:
        yield "why", part.why
    fewer = [other for other in part.others if other.devices < part.devices]
    more = [other for other in part.others if other.devices > part.devices]
    if fewer:
        yield "second best", _other(min(fewer, key=lambda other: other.seconds))
    elif part.runner_up:
        yield "second best", part.runner_up
    if more:
        yield "with more", _other(more[0])
    elif shared and not part.pinned and part.kind != "stage":
        yield "second best", f"none weighed on shared cores; --pin {part.pin}=2 plans with two"
    if part.turn:
        yield "turn", part.turn
    yield (
        "a step",
        (
            f"{seconds_text(part.seconds)} of work in each process: {part.busy:.0%} of the time "
            f"({part.basis or 'estimated'})"
        ),
    )
    if part.memory_bytes:
        yield "memory", f"{size_text(part.memory_bytes)} a process: {part.memory}"


def _laid_out(part: Part) -> str:
    count = counted(part.processes, "process", "processes")
    said = {"stage": "", "engine": part.layout}.get(part.kind, part.split)
    if part.kind == "engine" and part.processes == part.copies:
        count = ""
    if said == "one device":
        said = "" if part.processes == 1 else said
    return ", ".join(filter(None, (count, said)))


def _other(other: Other) -> str:
    devices = counted(other.devices, "device")
    said = (
        "" if other.layout in ("one device", f"{other.devices} engines") else f" as {other.layout}"
    )
    return f"{devices}{said}: {seconds_text(other.seconds)} of work a step, {other.worse:+.1%}"


def _devices(facts: Facts) -> Iterator[str]:
    rows = [
        (
            f"{used.count} x {used.kind}" if used.count > 1 else used.kind,
            used.where,
            f"{used.busy:.0%}",
            size_text(used.memory_bytes),
            size_text(used.memory_limit),
            ", ".join(name if n == 1 else f"{n} {name}" for name, n in used.processes.items()),
        )
        for used in facts.devices[:MOST_ROWS]
    ]
    yield from table(
        ("what", "where", "busy", "models", "of", "processes on each"), rows, (2, 3, 4)
    )
    yield from _more(len(facts.devices))
    if facts.plan.pool_bytes:
        yield from wrapped(
            f"Beside these models each worker may hold {size_text(facts.plan.pool_bytes)} of "
            "records in its pool."
        )


def _ways(facts: Facts) -> Iterator[str]:
    rows = [
        (
            way.stream,
            way.kind,
            f"{listed(way.makers) or '-'} -> {listed(way.readers) or '-'}",
            way.transport,
            size_text(way.capacity_bytes),
            f"{way.capacity_records:,}",
        )
        for way in facts.ways[:MOST_ROWS]
    ]
    yield from table(("stream", "what", "from and to", "by", "at most", "records"), rows, (4, 5))
    yield from _more(len(facts.ways))
    if rows:
        yield "A full one makes its producer wait; nothing is dropped for want of space."


def _edges(facts: Facts) -> Iterator[str]:
    for edge in facts.edges[:MOST_ROWS]:
        yield from wrapped(edge_words(edge))
    yield from _more(len(facts.edges))


def edge_words(edge: TrainingEdge) -> str:
    """How old the weights are that made what is trained on."""
    made = listed(edge.made_by)
    if not made:
        text = "no sample depends on its weights, so none can be stale"
    elif edge.behind == 0:
        text = f"trained only on what {made} made with its present weights (staleness 0)"
    else:
        count = counted(edge.behind, "update")
        text = f"trained on what {made} made with weights that lag at most {count} behind"
    return f"{edge.module} by {edge.train}: {text}"


def _rooms(facts: Facts) -> Iterator[str]:
    for said in room_words(facts):
        yield from wrapped(said)


def room_words(facts: Facts) -> list[str]:
    """What the orchestrator may change without a new plan."""
    plan = facts.plan
    moving = [room for room in plan.rooms if room.least < room.most]
    said = [
        f"{room.group} may have {room.least} to {room.most} processes; moving one costs "
        f"{seconds_text(room.move_seconds)}"
        for room in moving[:MOST_ROWS]
    ]
    if moving:
        balance = plan.balance
        said.append(
            f"Engines move to the agent with the longer queue (by {balance.by}) once its share is "
            f"{balance.excess:g} times that of its engines, if that saves {balance.gain:g} s for "
            "each second spent."
        )
    return said


def _pins(facts: Facts) -> Iterator[str]:
    for name, value in facts.pins.items():
        yield f"{name} = {value}: the compiler was told so, and took it as given"


def _neighbours(facts: Facts) -> Iterator[str]:
    for said in neighbour_words(facts.plan):
        yield from wrapped(said)


def _more(count: int) -> Iterator[str]:
    if count > MOST_ROWS:
        yield f"... and {count - MOST_ROWS} more; --json has them all"


def _capital(text: str) -> str:
    """Names stay as they are: only a word's first letter is raised."""
    first, _, rest = text.partition(" ")
    return text if "." in first or "-" in first else f"{first.capitalize()} {rest}"
