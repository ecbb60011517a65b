"""Every layout that a part may have on the cluster, with its time and memory, as far as it fits."""

import math

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Agent, Module
from flowgraph.ir.index import attribute
from flowgraph.ir.plan import Layout
from flowgraph.passes.demand import batch_of
from flowgraph.passes.layout_costs import (
    Estimate,
    GangWork,
    Place,
    engine_estimate,
    gang_estimate,
)
from flowgraph.passes.layouts import gang_layouts, instance_counts, named, tensor_ways
from flowgraph.passes.state import LaidOut, State
from flowgraph.passes.words import counted, size_text
from flowgraph.passes.works import engine_work, gang_work

MOST_ALONE = 1 << 16
"""Devices of a kind up to which layouts are tried; no known cluster is larger."""


def engine_options(state: State, agent: Agent, places: tuple[Place, ...]) -> tuple[LaidOut, ...]:
    """Counts of an agent's engines, and devices of each. PlanError when none fits the memory."""
    found: list[tuple[LaidOut, Place]] = []
    refused: list[tuple[LaidOut, Place]] = []
    pinned = state.pins.get(agent.name, "engines")
    for place in places:
        work = engine_work(state, agent, place)
        devices = _devices(state, place)
        most = pinned or min(devices, batch_of(state.graph))
        for tp in _allowed(state, agent.name, "engine_tp", tensor_ways(work.model, place.node)):
            for count in [pinned] if pinned else instance_counts(min(most, devices // tp)):
                made = engine_estimate(work, Layout(tp=tp), count, place)
                option = LaidOut(
                    layout=Layout(tp=tp),
                    kind=place.kind,
                    replicas=count,
                    seconds=made.seconds,
                    memory_bytes=made.memory_bytes,
                    terms=made.terms,
                )
                (found if _fits(made, place) else refused).append((option, place))
    return _options(state, f"{agent.name}.engine", found, refused)


def gang_options(state: State, module: Module, places: tuple[Place, ...]) -> tuple[LaidOut, ...]:
    """Micro-batches smaller than asked are tried where the asked one fits no layout, or a pipeline
    wants more of them; the asked one stays where it is as fast, since exact runs depend on it."""
    found: list[tuple[LaidOut, Place]] = []
    refused: list[tuple[LaidOut, Place]] = []
    for place in places:
        work = gang_work(state, module, place)
        wanted = _ranks(state, module)
        devices = max(_devices(state, place), wanted or 0)
        every = wanted is not None or state.pins.get(module.name, "dp") is not None
        for layout in gang_layouts(work, devices, place.node, every=every):
            if not _as_pinned(state, module, layout):
                continue
            for made, micro in _micro_batches(state, module, work, layout, place):
                option = LaidOut(
                    layout=layout,
                    kind=place.kind,
                    replicas=1,
                    seconds=made.seconds,
                    memory_bytes=made.memory_bytes,
                    terms=made.terms,
                    micro_batch=int(micro),
                )
                (found if _fits(made, place) else refused).append((option, place))
    return _options(state, f"{module.name}.gang", found, refused)


def _micro_batches(
    state: State, module: Module, work: GangWork, layout: Layout, place: Place
) -> list[tuple[Estimate, float]]:
    """The asked micro-batch, then halves of it down to a row, as long as they help."""
    row = _row(state, module, work)
    made = gang_estimate(work, layout, place)
    best = [(made, work.micro)]
    micro = work.micro / 2
    while work.trained and micro >= row and (layout.pp > 1 or not _fits(made, place)):
        made = gang_estimate(work, layout, place, micro)
        if made.seconds >= best[-1][0].seconds and _fits(best[-1][0], place):
            break
        best.append((made, micro))
        micro /= 2
    return best


def _row(state: State, module: Module, work: GangWork) -> float:
    """Tokens that a micro-batch holds at least: a packed row, or a sample."""
    rows = [
        float(attribute(stage, "tokens"))
        for stage in state.graph.by_op("pack")
        if any(stage.outputs[0] in t.inputs for t in state.graph.by_op("train"))
        if any(module.name == t.modules[0] for t in state.graph.consumers(stage.outputs[0]))
    ]
    pinned = any(
        state.pins.get(t.name, "micro_batch")
        for t in state.graph.by_op("train")
        if t.modules[0] == module.name
    )
    return math.inf if pinned else max([work.model.length, *rows])


def _devices(state: State, place: Place) -> int:
    own = (
        n.devices * state.cluster.kind(n.device).slots
        for n in state.cluster.nodes
        if n.device == place.kind
    )
    return min(sum(own), MOST_ALONE)


def _fits(made: Estimate, place: Place) -> bool:
    return not place.memory_bytes or made.memory_bytes <= place.memory_bytes


def _allowed(state: State, subject: str, way: str, ways: list[int]) -> list[int]:
    """The pinned number of ways if there is one."""
    pinned = state.pins.get(subject, way)
    if pinned is None:
        return ways
    if pinned not in ways:
        raise PlanError(
            f"pin {subject}.{way}={pinned}: heads and nodes allow {', '.join(map(str, ways))}",
            hint=f"{subject}.{way}={max(w for w in ways if w <= pinned)}",
        )
    return [pinned]


def _as_pinned(state: State, module: Module, layout: Layout) -> bool:
    ranks = _ranks(state, module)
    own = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp, "dp": layout.dp}
    return (ranks is None or layout.ranks == ranks) and all(
        state.pins.get(module.name, way) in (None, count) for way, count in own.items()
    )


def _ranks(state: State, module: Module) -> int | None:
    """Ranks that a pin or the graph wants for the module's gang; None when both leave it open."""
    pinned: int | None = state.pins.get(module.name, "ranks")
    return pinned or asked(state, module)


def asked(state: State, module: Module) -> int | None:
    """Devices that the graph wants for the module's gang; None when it leaves that open."""
    users = [s for s in state.graph.stages if s.op in ("train", "apply") and s.modules]
    most = max((s.devices for s in users if s.modules[0] == module.name), default=1)
    return most if most > 1 else None


def _options(
    state: State,
    part: str,
    found: list[tuple[LaidOut, Place]],
    refused: list[tuple[LaidOut, Place]],
) -> tuple[LaidOut, ...]:
    """What fits; PlanError with the arithmetic of the smallest when nothing does."""
    if found:
        return tuple(option for option, _ in found)
    if not refused:
        return ()
    least, place = min(refused, key=lambda it: it[0].memory_bytes / it[1].memory_bytes)
    terms = " + ".join(f"{name} {size_text(size)}" for name, size in least.terms.items())
    worst = max(least.terms, key=lambda name: least.terms[name])
    raise PlanError(
        f"{part} needs {size_text(least.memory_bytes)} a device ({terms}) even {_spread(least)}, "
        f"a {place.kind!r} of cluster {state.cluster.name!r} has {size_text(place.memory_bytes)}",
        hint=_memory_hint(part, worst, least, place),
    )


def _spread(option: LaidOut) -> str:
    """`as tp4 over 4 devices`."""
    again = ", recomputing" if option.layout.recompute else ""
    if option.devices == 1:
        return f"on a device of its own{again}"
    return f"as {named(option.layout)} over {counted(option.devices, 'device')}"


def _memory_hint(part: str, worst: str, least: LaidOut, place: Place) -> str:
    times = math.ceil(least.memory_bytes / place.memory_bytes)
    subject = part.rpartition(".")[0]
    return {
        "KV cache": f"1/{times} of {subject}.slots, or a smaller max_length",
        "activations": "a smaller micro_batch",
    }.get(
        worst,
        f"devices with {size_text(least.memory_bytes)}, {times} times as many of them in a node, "
        f"or a smaller dtype than that of its {worst}",
    )
