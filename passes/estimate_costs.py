"""estimate-costs: seconds and memory of each part, under each layout that it may have."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.graph import Agent, Module, Stage
from flowgraph.ir.index import attribute
from flowgraph.ir.plan import Layout
from flowgraph.passes import layout_costs
from flowgraph.passes.demand import (
    accelerated,
    batch_of,
    calls_a_step,
    games_of,
    max_length_of,
    prompt_tokens,
    response_tokens,
    slots_of,
    unit_of,
    updates_of,
    used_agents,
)
from flowgraph.passes.layout_costs import (
    Described,
    EngineWork,
    Estimate,
    GangWork,
    Place,
    engine_estimate,
    gang_estimate,
)
from flowgraph.passes.layouts import gang_layouts, instance_counts, named, tensor_ways
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.state import Choices, Cost, LaidOut, State
from flowgraph.passes.words import counted
from flowgraph.runtime.policy.roofline import (
    SAMPLE_TOKENS,
    device_of_kind,
    kv_bytes,
    shape_of,
)
from flowgraph.runtime.policy.step_time import (
    STAGE_SECONDS,
    apply_times,
    engine_times,
    train_times,
)

MOST_ALONE = 1 << 16
"""Devices of a kind up to which layouts are tried; no known cluster is larger."""


@dataclass(frozen=True, slots=True)
class EstimateCosts:
    """Requires rates. Ensures a `Cost` of the host, each engine and each gang on one device, and on
    accelerators `options`: what each part takes under every layout that fits the memory.

    Measured times take the place of estimates on the kind of device they were measured on.
    Refuses a part that no layout makes fit. Changes nothing else.
    """

    name: ClassVar[str] = "estimate-costs"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        places = places_of(state)
        first = places[0]
        costs = [_host_cost(state)]
        options: dict[str, tuple[LaidOut, ...]] = {}
        for agent in used_agents(state.graph):
            part = f"{agent.name}.engine"
            made = engine_estimate(engine_work(state, agent, first), Layout(), 1, first)
            costs.append(_cost(state, part, made, first.kind))
            if accelerated(state):
                options[part] = _engine_options(state, agent, places)
        for module in gang_modules(state):
            part = f"{module.name}.gang"
            made = gang_estimate(gang_work(state, module, first), Layout(), first)
            costs.append(_cost(state, part, made, first.kind))
            if accelerated(state):
                options[part] = _gang_options(state, module, places)
        for cost in costs:
            shown = f"{cost.seconds:.3g} s, {cost.memory_bytes / 2**20:.0f} MiB"
            choices.choose(cost.part, "cost", shown, _because(state, cost, first.kind))
        return choices.onto(state, costs={cost.part: cost for cost in costs}, options=options)


def gang_modules(state: State) -> tuple[Module, ...]:
    """Modules whose weights a gang holds: trained, or applied to records."""
    held = {name for s in state.graph.stages if s.op in ("train", "apply") for name in s.modules}
    return tuple(module for module in state.graph.modules if module.name in held)


def places_of(state: State) -> tuple[Place, ...]:
    """Each kind of device that engines and gangs may use, in the cluster's order."""
    wanted = accelerated(state)
    found: dict[str, Place] = {}
    for node in state.cluster.nodes:
        kind = state.cluster.kind(node.device)
        if (kind.kind != "cpu") != wanted:
            continue
        other = found.get(kind.name)
        intra = node.intra or layout_costs.INTRA_BANDWIDTH
        found[kind.name] = Place(
            device=device_of_kind(kind),
            kind=kind.name,
            memory_bytes=kind.memory_bytes or (0 if wanted else node.memory_bytes),
            intra=min(intra, other.intra) if other else intra,
            inter=state.cluster.inter or layout_costs.INTER_BANDWIDTH,
            node=max(node.devices, other.node if other else 0),
        )
    return tuple(found.values())


def _cost(state: State, part: str, made: Estimate, kind: str) -> Cost:
    return Cost(
        part=part,
        seconds=made.seconds,
        memory_bytes=made.memory_bytes,
        terms=made.terms,
        measured=any(
            state.measured.get(part, name, kind)
            for name in ("iteration_s", "token_s", "item_s", "row_s", "prefill_token_s")
        ),
    )


def _because(state: State, cost: Cost, kind: str) -> str:
    own = {
        name.rpartition(".")[2]: measure
        for name, measure in state.measured.values.items()
        if name.rpartition(".")[0] == cost.part and kind == state.measured.device
    }
    terms = ", ".join(f"{k} {v / 2**20:.1f} MiB" for k, v in cost.terms.items())
    if own:
        said = ", ".join(f"{name} {measure}" for name, measure in own.items())
        return f"measured: {said}" + (f"; estimated: {terms}" if terms else "")
    return f"estimated: {terms or 'user code assumed'}"


def _host_cost(state: State) -> Cost:
    games = sum(attribute(s, "trajectories") for s in state.graph.by_op("episodes"))
    core = next((k.name for k in state.cluster.kinds if k.kind == "cpu"), "")
    measured = state.measured.get("host", "sample_s", core)
    sample = measured.value if measured else STAGE_SECONDS * max(1, games)
    seconds = batch_of(state.graph) * sample
    return Cost(part="host", seconds=seconds, memory_bytes=0, measured=measured is not None)


def _described(module: Module, length: float) -> Described:
    said = module.description
    heads = int(said.get("heads") or 0)
    return Described(
        shape=shape_of(module),
        heads=heads,
        kv_heads=int(said.get("kv_heads") or heads),
        head_width=int(said.get("head_width") or int(said.get("width") or 0) // max(1, heads)),
        vocab=int(said.get("vocab") or 0),
        length=length,
    )


def engine_work(state: State, agent: Agent, place: Place) -> EngineWork:
    """A step of the agent's calls on that kind of device."""
    module = state.graph.module(agent.module)
    prompt, response = prompt_tokens(agent), response_tokens(agent)
    times = engine_times(shape_of(module), place.device, prompt=prompt, response=response)
    part = f"{agent.name}.engine"
    found = {
        name: measure.value
        for name in ("prefill_token_s", "iteration_s", "row_s")
        if (measure := state.measured.get(part, name, place.kind))
    }
    if "iteration_s" in found:
        found["read_s"] = 0.0  # a measured iteration has it in
    batch = batch_of(state.graph)
    open_ = sum(
        min(attribute(s, "in_flight"), batch) * attribute(s, "trajectories")
        for s in games_of(state.graph, agent)
    )
    return EngineWork(
        model=_described(module, prompt + response),
        calls=float(calls_a_step(state, agent)),
        prompt=prompt,
        response=response,
        slots=state.pins.get(agent.name, "slots") or slots_of(state, agent)[0],
        concurrent=float(open_),
        max_length=max_length_of(state, agent)[0],
        kv_bytes=kv_bytes(module),
        times=replace(times, **found),
        measured=bool(found),
    )


def gang_work(state: State, module: Module, place: Place) -> GangWork:
    """A step of the module's training or forward on that kind of device."""
    graph = state.graph
    trainer = trained_modules(graph).get(module.name)
    tokens, length, micro = _tokens_of(state, module)
    shape = shape_of(module)
    make = train_times if trainer else apply_times
    times = make(shape, place.device, length=length, a_record=1.0)
    part = f"{module.name}.gang"
    token = state.measured.get(part, "token_s", place.kind)
    item = state.measured.get(part, "item_s", place.kind)
    held = _reference_of(state, module)
    token_s, item_s = times.weight_s, times.item_s
    if held is not None:
        other = shape_of(held)
        token_s += place.device.compute(other, tokens=1.0, length=length, passes=1)
        item_s += place.device.launches(other)
    units = math.ceil(batch_of(graph) / updates_of(graph) / unit_of(graph)[0])
    return GangWork(
        model=_described(module, length),
        trained=trainer is not None,
        tokens=tokens,
        micro=micro,
        units=max(1, units),
        updates=updates_of(graph),
        moments=_moments(trainer) if trainer else 0,
        token_s=token.value if token else token_s,
        item_s=item.value if item else item_s,
        reference=shape_of(held) if held else None,
        measured=token is not None or item is not None,
    )


def _reference_of(state: State, module: Module) -> Module | None:
    """The module whose log-probs the losses of this one's trainer read; each rank holds it too."""
    for stage in state.graph.by_op("train"):
        if stage.modules[0] == module.name and attribute(stage, "reference"):
            return state.graph.module(attribute(stage, "reference"))
    return None


def _moments(train: Stage) -> int:
    """Copies of the weights that the optimizer keeps, in the weights' dtype as torch's do."""
    settings = attribute(train, "optimizer")
    if settings.get("name") == "sgd":
        return 1 if settings.get("momentum") else 0
    return 3 if settings.get("amsgrad") else 2


def _tokens_of(state: State, module: Module) -> tuple[float, float, float]:
    """(tokens a step, tokens a record, tokens a micro-batch) that the gang computes."""
    total, length, micro = 0.0, float(SAMPLE_TOKENS), 0.0
    for stage in state.graph.stages:
        if stage.op == "train" and stage.modules[0] == module.name:
            micro = max(micro, float(attribute(stage, "micro_batch")))
        elif not (stage.op == "apply" and stage.modules[0] == module.name):
            continue
        read = stage.inputs[0]
        length = state.tokens[read] or float(SAMPLE_TOKENS)
        total += batch_of(state.graph) * float(state.rates[read]) * length
    return total, length, micro or max(total, 1.0)


def _engine_options(state: State, agent: Agent, places: tuple[Place, ...]) -> tuple[LaidOut, ...]:
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


def _gang_options(state: State, module: Module, places: tuple[Place, ...]) -> tuple[LaidOut, ...]:
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
    terms = " + ".join(f"{name} {_gib(size)}" for name, size in least.terms.items())
    worst = max(least.terms, key=lambda name: least.terms[name])
    devices = least.layout.ranks * least.replicas
    raise PlanError(
        f"{part} needs {_gib(least.memory_bytes)} a device ({terms}) even as "
        f"{named(least.layout)} over {counted(devices, 'device')}, a {place.kind!r} of cluster "
        f"{state.cluster.name!r} has {_gib(place.memory_bytes)}",
        hint=_memory_hint(part, worst, least, place),
    )


def _memory_hint(part: str, worst: str, least: LaidOut, place: Place) -> str:
    times = math.ceil(least.memory_bytes / place.memory_bytes)
    subject = part.rpartition(".")[0]
    return {
        "KV cache": f"{subject}.slots a {times}th of now, or a smaller max_length",
        "activations": "a smaller micro_batch",
    }.get(
        worst,
        f"devices with {_gib(least.memory_bytes)}, {times} times as many of them in a node, or a "
        f"smaller dtype than its {worst} have now",
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
