"""What a step asks of each model: the work whose time and memory layouts are weighed by."""

import math
from dataclasses import replace

from flowgraph.ir.graph import Agent, Module, Stage
from flowgraph.ir.index import attribute
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
)
from flowgraph.passes.headroom import deviation
from flowgraph.passes.layout_costs import (
    Described,
    EngineWork,
    GangWork,
    Place,
)
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.state import State
from flowgraph.runtime.policy.roofline import (
    SAMPLE_TOKENS,
    attended,
    device_of_kind,
    kv_bytes,
    shape_of,
)
from flowgraph.runtime.policy.step_time import (
    apply_times,
    engine_times,
    train_times,
)


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


def gang_modules(state: State) -> tuple[Module, ...]:
    """Modules whose weights a gang holds: trained, or applied to records."""
    held = {name for s in state.graph.stages if s.op in ("train", "apply") for name in s.modules}
    return tuple(module for module in state.graph.modules if module.name in held)


def only_models(state: State) -> State:
    """With only the stages that models run in, which each model is then looked for in."""
    kept = ("train", "apply", "episodes", "pack")
    stages = tuple(stage for stage in state.graph.stages if stage.op in kept)
    return replace(state, graph=replace(state.graph, stages=stages))


def engine_work(state: State, agent: Agent, place: Place) -> EngineWork:
    """A step of the agent's calls on that kind of device."""
    module = state.graph.module(agent.module)
    prompt, response = prompt_tokens(agent), response_tokens(agent)
    times = engine_times(
        shape_of(module),
        place.device,
        prompt=prompt,
        response=response,
        kv_bytes=kv_bytes(module),
    )
    seen = attended(prompt, prompt * deviation(agent.expect.get("prompt")))
    prefill = place.device.compute(shape_of(module), tokens=1.0, length=seen, passes=1)
    times = replace(times, prefill_token_s=prefill)
    part = f"{agent.name}.engine"
    found = {
        name: measure.value
        for name in ("prefill_token_s", "iteration_s", "row_s")
        if (measure := state.measured.get(part, name, place.kind))
    }
    if "iteration_s" in found:
        found |= {"read_s": 0.0, "row_read_s": 0.0}  # a measured iteration has them in
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
    tokens, length, micro, seen = _tokens_of(state, module)
    shape = shape_of(module)
    make = train_times if trainer else apply_times
    times = make(shape, place.device, length=seen, a_record=1.0)
    part = f"{module.name}.gang"
    token = state.measured.get(part, "token_s", place.kind)
    item = state.measured.get(part, "item_s", place.kind)
    held = _reference_of(state, module)
    token_s, item_s = times.weight_s, times.item_s
    if held is not None:
        other = shape_of(held)
        token_s += place.device.compute(other, tokens=1.0, length=seen, passes=1)
        item_s += place.device.launches(other)
    unit = state.pins.get("schedule", "unit") or unit_of(state)[0]
    units = math.ceil(batch_of(graph) / updates_of(graph) / unit)
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


def _tokens_of(state: State, module: Module) -> tuple[float, float, float, float]:
    """(tokens a step, tokens a record, tokens a micro-batch, tokens that attention spans)."""
    total, length, micro = 0.0, float(SAMPLE_TOKENS), 0.0
    seen = length
    for stage in state.graph.stages:
        if stage.op == "train" and stage.modules[0] == module.name:
            micro = max(micro, float(attribute(stage, "micro_batch")))
        elif not (stage.op == "apply" and stage.modules[0] == module.name):
            continue
        read = stage.inputs[0]
        length = state.tokens[read] or float(SAMPLE_TOKENS)
        seen = attended(length, length * state.spreads.get(read, 0.0))
        total += batch_of(state.graph) * float(state.rates[read]) * length
    return total, length, micro or max(total, 1.0), seen
