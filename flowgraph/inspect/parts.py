"""Each group of workers: what it does, how it is laid out and why, what it costs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowgraph.ir.plan import Decision, Layout, Place, Plan, WorkerGroup
from flowgraph.passes.layouts import named
from flowgraph.passes.words import counted, listed, ranges, size_text

COUNT = {"stage": ("replicas",), "engine": ("engines",), "gang": ("ranks", "dp")}
"""By kind of group, the decision that says how many processes it has."""

RUNS_SHOWN = 3
STAGES_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A layout that was not taken. worse: how much longer it takes than the chosen one, a share."""

    layout: str
    devices: int
    seconds: float
    worse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A group of workers in words and figures.

    does: its work. devices: distinct ones that it uses, 0 for the hosts' cores. layout, split: how
    the module is split, in short and in words. copies: whole copies of the module that share the
    work. seconds: of a step; busy: the share of it that each process works; measured: not an
    estimate; basis: what the seconds rest on. memory_bytes: of one process; memory: what they are.
    why: the binding constraint. runner_up: the second best and how much worse it is, "" where the
    pass weighed none; others: what else was weighed. pin: the decision's name, for `--pin`.
    turn: with whom it shares its devices, or "".
    """

    name: str
    kind: str
    module: str
    does: str
    processes: int
    devices: int
    layout: str
    split: str
    copies: int
    where: str
    seconds: float
    busy: float
    memory_bytes: int
    memory: str
    measured: bool
    basis: str
    why: str
    runner_up: str
    others: tuple[Other, ...]
    pinned: bool
    pin: str
    turn: str


Decisions = Mapping[tuple[str, str], Decision]


def decisions_of(plan: Plan) -> Decisions:
    """By subject and name; the last where passes decided twice."""
    return {(decision.subject, decision.name): decision for decision in plan.decisions}


def parts_of(plan: Plan, decisions: Decisions) -> tuple[Part, ...]:
    order = node_order(plan)
    return tuple(_part(plan, group, decisions, order) for group in plan.groups)


def _part(plan: Plan, group: WorkerGroup, decisions: Decisions, order: Mapping[str, int]) -> Part:
    prediction = plan.prediction
    subject, name = _subject(group), COUNT[group.kind][0]
    chosen = next(
        (found for way in COUNT[group.kind] if (found := decisions.get((subject, way)))), None
    )
    cost = decisions.get((group.name, "cost"))
    basis, _, rests_on = (cost.binding if cost else "").partition(": ")
    seconds = prediction.seconds.get(group.name, 0.0)
    return Part(
        name=group.name,
        kind=group.kind,
        module=group.module,
        does=_does(plan, group),
        processes=group.replicas,
        devices=len({(p.node, p.device) for p in group.places if p.device >= 0}),
        layout=_layout(group),
        split=layout_words(group.layout),
        copies=group.layout.dp if group.kind == "gang" else instances(group.replicas, group.layout),
        where=places_text(group.places, order),
        seconds=seconds,
        busy=min(1.0, seconds / prediction.step_seconds) if prediction.step_seconds else 0.0,
        memory_bytes=prediction.memory_bytes.get(group.name, 0),
        memory=", ".join(
            f"{name} {size_text(size)}"
            for name, size in sorted(
                prediction.memory_terms.get(group.name, {}).items(), key=lambda it: (-it[1], it[0])
            )
        ),
        measured=group.name in prediction.measured,
        basis=_basis(group, basis, rests_on.partition("; estimated")[0]),
        why=_why(chosen),
        runner_up=str(chosen.runner_up) if chosen and chosen.runner_up is not None else "",
        others=_others(plan, group),
        pinned=bool(chosen and chosen.pinned),
        pin=f"{subject}.{chosen.name if chosen else name}",
        turn=_turn(group),
    )


def _basis(group: WorkerGroup, basis: str, of: str) -> str:
    if group.kind == "stage" and basis != "measured":
        return "assumed: `flowgraph profile` can measure your code"
    return f"measured: {of}" if basis == "measured" else basis or "estimated"


def _why(chosen: Decision | None) -> str:
    if chosen is None:
        return ""
    return "pinned: the compiler was told so" if chosen.pinned else chosen.binding


def _subject(group: WorkerGroup) -> str:
    """Whose decision the count of processes is."""
    if group.kind == "engine":
        return group.agents[0] if group.agents else group.name
    return group.module or group.name


def _does(plan: Plan, group: WorkerGroup) -> str:
    if group.kind == "engine":
        return f"answers the calls of agent {listed(group.agents)} with module {group.module}"
    if group.kind == "stage":
        own = [name for task in plan.tasks if task.group == group.name for name in task.stages]
        more = (
            [f"{len(own) - STAGES_SHOWN} more"]
            if len(own) > STAGES_SHOWN + 1
            else own[STAGES_SHOWN:]
        )
        return f"runs your code: {listed([*own[:STAGES_SHOWN], *more])}"
    kinds = {task.kind for task in plan.tasks if task.group == group.name}
    fixed = plan.graph.module(group.module).trainable is False
    if kinds == {"apply"}:
        return f"runs module {group.module}" + (
            ", whose weights stay as they are" if fixed else " forward, and backward to train it"
        )
    if "apply" in kinds:
        return f"runs and trains module {group.module}"
    return f"trains module {group.module}"


def instances(processes: int, layout: Layout) -> int:
    """Engines that so many processes are."""
    return processes // max(1, layout.ranks)


def layout_words(layout: Layout) -> str:
    """Each way of splitting with what it splits: `dp2 (2 copies share the samples)`."""
    ways = (
        ("dp", layout.dp, "copies share the samples"),
        ("tp", layout.tp, "devices share each layer"),
        ("pp", layout.pp, "stages share the layers"),
        ("cp", layout.cp, "devices share each sequence"),
    )
    said = [f"{name}{count} ({count} {what})" for name, count, what in ways if count > 1]
    text = " x ".join(said) or "one device"
    return f"{text}, computing activations twice to save memory" if layout.recompute else text


def _layout(group: WorkerGroup) -> str:
    if group.kind == "stage":
        return counted(group.replicas, "process", "processes")
    if group.kind == "engine":
        count = counted(instances(group.replicas, group.layout), "engine")
        return count if group.layout.ranks == 1 else f"{count} of {named(group.layout)}"
    return named(group.layout)


def _others(plan: Plan, group: WorkerGroup) -> tuple[Other, ...]:
    """What the pass weighed beside the chosen layout, by devices."""
    own = plan.prediction.seconds.get(group.name, 0.0)
    room = next((room for room in plan.rooms if room.group == group.name), None)
    found = []
    for way in room.alternatives if room else ():
        ranks = way.layout.ranks
        engines = f"{counted(instances(way.replicas, way.layout), 'engine')}"
        text = named(way.layout) if group.kind == "gang" else engines
        if group.kind == "engine" and ranks > 1:
            text += f" of {named(way.layout)}"
        worse = way.seconds / own - 1 if own else 0.0
        found.append(Other(layout=text, devices=way.replicas, seconds=way.seconds, worse=worse))
    return tuple(sorted(found, key=lambda other: other.devices))


def _turn(group: WorkerGroup) -> str:
    if not group.shares:
        return ""
    return (
        f"number {group.turn + 1} in turn on the devices of {group.shares}; its weights are "
        f"{group.residency} between turns"
    )


def node_order(plan: Plan) -> Mapping[str, int]:
    return {node.name: i for i, node in enumerate(plan.cluster.nodes)}


def places_text(places: Iterable[Place], order: Mapping[str, int]) -> str:
    """Nodes with the devices used on each: `n0:0-3`; `n0` alone for its cores.

    Neighbours in the cluster's order of which the same devices are used are told together:
    `n0 to n6:0-15`.
    """
    nodes: dict[str, set[int]] = {}
    for place in places:
        nodes.setdefault(place.node, set()).add(place.device)
    runs: list[tuple[list[str], str]] = []
    for name in sorted(nodes, key=lambda name: order[name]):
        devices = nodes[name] - {-1}
        text = f":{ranges(sorted(devices))}" if devices else ""
        if runs and runs[-1][1] == text and order[name] == order[runs[-1][0][-1]] + 1:
            runs[-1][0].append(name)
        else:
            runs.append(([name], text))
    shown = [f"{_run(names)}{text}" for names, text in runs[:RUNS_SHOWN]]
    left = sum(len(names) for names, _ in runs[RUNS_SHOWN:])
    return " ".join([*shown, *([f"and {counted(left, 'more node')}"] if left else [])])


def _run(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
