"""estimate-costs: seconds and memory of each group of workers, from models described as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from flowgraph.ir.cluster import DeviceKind
from flowgraph.ir.graph import Agent, Module, Stage
from flowgraph.ir.index import attribute
from flowgraph.passes import assumptions
from flowgraph.passes.demand import (
    accelerated,
    batch_of,
    calls_a_step,
    max_length_of,
    prompt_tokens,
    response_tokens,
    slots_of,
    used_agents,
)
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.roofline import Device, kv_bytes, shape_of
from flowgraph.passes.state import Choices, Cost, State


@dataclass(frozen=True, slots=True)
class EstimateCosts:
    """Requires rates. Ensures a `Cost` for the host, each engine and each gang.

    Seconds are those of a whole step's demand on one process. Nothing is measured here.
    Changes nothing else.
    """

    name: ClassVar[str] = "estimate-costs"

    def apply(self, state: State) -> State:
        device = device_of(state)
        costs = [_host_cost(state)]
        costs += [_engine_cost(state, agent, device) for agent in used_agents(state.graph)]
        costs += [_gang_cost(state, module, device) for module in gang_modules(state)]
        choices = Choices(self.name, state.pins)
        for cost in costs:
            shown = f"{cost.seconds:.3g} s, {cost.memory_bytes / 2**20:.0f} MiB"
            terms = ", ".join(f"{k} {v / 2**20:.1f} MiB" for k, v in cost.terms.items())
            choices.choose(cost.part, "cost", shown, f"estimated: {terms or 'user code assumed'}")
        return choices.onto(state, costs={cost.part: cost for cost in costs})


def gang_modules(state: State) -> tuple[Module, ...]:
    """Modules whose weights a gang holds: trained, or applied to records."""
    held = {name for s in state.graph.stages if s.op in ("train", "apply") for name in s.modules}
    return tuple(module for module in state.graph.modules if module.name in held)


def device_of(state: State) -> Device:
    """The device that estimates are made for: the first accelerator, else the first kind."""
    kinds = [state.cluster.kind(node.device) for node in state.cluster.nodes]
    chosen: DeviceKind = next((kind for kind in kinds if kind.kind != "cpu"), kinds[0])
    cpu = not accelerated(state)
    flops = dict(chosen.flops)
    peak = assumptions.CPU_FLOPS if cpu else assumptions.DEVICE_FLOPS
    return Device(
        flops={**dict.fromkeys(("float32", "bfloat16", "float16"), peak), **flops},
        bandwidth=chosen.bandwidth
        or (assumptions.CPU_BANDWIDTH if cpu else assumptions.DEVICE_BANDWIDTH),
    )


def _host_cost(state: State) -> Cost:
    games = sum(attribute(s, "trajectories") for s in state.graph.by_op("episodes"))
    seconds = batch_of(state.graph) * max(1, games) * assumptions.STAGE_SECONDS
    return Cost(part="host", seconds=seconds, memory_bytes=0)


def _engine_cost(state: State, agent: Agent, device: Device) -> Cost:
    module = state.graph.module(agent.module)
    shape = shape_of(module)
    slots, _ = slots_of(state, agent)
    slots = state.pins.get(agent.name, "slots") or slots
    calls = float(calls_a_step(state, agent))
    prompt, response = prompt_tokens(agent), response_tokens(agent)
    prefill = device.compute(shape, tokens=calls * prompt, length=prompt, passes=1)
    rows = min(float(slots), calls)
    iterations = calls * response / max(rows, 1.0)
    a_row = shape.flops_a_token(prompt + response)
    decode = iterations * max(
        shape.parameters * shape.bytes / device.bandwidth, rows * a_row / device.peak(shape)
    )
    launches = iterations * device.launches(shape)
    terms = {
        "weights": shape.parameters * shape.bytes,
        "KV cache": slots * max_length_of(state, agent)[0] * kv_bytes(module),
    }
    return Cost(
        part=f"{agent.name}.engine",
        seconds=prefill + decode + launches,
        memory_bytes=sum(terms.values()),
        terms=terms,
    )


def _gang_cost(state: State, module: Module, device: Device) -> Cost:
    shape = shape_of(module)
    trainer = trained_modules(state.graph).get(module.name)
    tokens, length, micro = _tokens_of(state, module)
    passes = 3 if trainer else 1
    batches = max(1.0, tokens / micro)
    seconds = device.compute(shape, tokens=tokens, length=length, passes=passes)
    seconds += batches * passes * device.launches(shape)
    terms = {"weights": shape.parameters * shape.bytes}
    if trainer:
        moments = {"adam": 2, "adamw": 2}.get(_optimizer(trainer), 1)
        terms["gradients"] = shape.parameters * shape.bytes
        terms["optimizer"] = shape.parameters * 4 * moments
        terms["activations"] = int(micro * shape.activation_bytes)
    if reference := _reference_of(state, module):
        held = shape_of(reference)
        terms["reference"] = held.parameters * held.bytes
        seconds += device.compute(held, tokens=tokens, length=length, passes=1)
        seconds += batches * device.launches(held)
    return Cost(
        part=f"{module.name}.gang",
        seconds=seconds,
        memory_bytes=sum(terms.values()),
        terms=terms,
    )


def _reference_of(state: State, module: Module) -> Module | None:
    """The module whose log-probs the losses of this one's trainer read; each rank holds it too."""
    for stage in state.graph.by_op("train"):
        if stage.modules[0] == module.name and attribute(stage, "reference"):
            return state.graph.module(attribute(stage, "reference"))
    return None


def _optimizer(train: Stage) -> str:
    settings = attribute(train, "optimizer")
    return str(settings.get("name", "")) if isinstance(settings, Mapping) else ""


def _tokens_of(state: State, module: Module) -> tuple[float, float, float]:
    """(tokens a step, tokens a record, tokens a micro-batch) that the gang computes."""
    total, length, micro = 0.0, float(assumptions.SAMPLE_TOKENS), 0.0
    for stage in state.graph.stages:
        if stage.op == "train" and stage.modules[0] == module.name:
            micro = max(micro, float(attribute(stage, "micro_batch")))
        elif not (stage.op == "apply" and stage.modules[0] == module.name):
            continue
        read = stage.inputs[0]
        length = state.tokens[read] or float(assumptions.SAMPLE_TOKENS)
        total += batch_of(state.graph) * float(state.rates[read]) * length
    return total, length, micro or max(total, 1.0)
