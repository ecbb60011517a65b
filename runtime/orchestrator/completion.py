"""What workers have done: items finished, gradients brought back, and what that makes ready.

A message is looked at as a whole before any of it is taken: one that does not fit what the worker
was asked for is refused, and changes nothing.
"""

import math
from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import Backward, BackwardDone, Done, PlainHandle, Sums
from flowgraph.runtime.orchestrator.blocks import OWNER, release, retain
from flowgraph.runtime.orchestrator.events import Action, Refuse, Send
from flowgraph.runtime.orchestrator.membership import GATE, gate_done
from flowgraph.runtime.orchestrator.state import Item, State, Step, Worker
from flowgraph.runtime.orchestrator.units import finish


def step_of(state: State, item: Item) -> Step:
    """The step that a unit of work belongs to; it is queued as long as the work is held."""
    found = state.steps[0]
    if found.order == item.order:
        return found
    for found in state.steps:
        if found.order == item.order:
            return found
    raise InternalError(f"item {item.id} is of no step that is queued")


def done(state: State, message: Done) -> list[Action]:
    """An item is finished, and its outputs are readable."""
    worker = state.workers[message.worker]
    if message.item not in worker.items:
        return [Refuse("out of turn", f"{worker.name} is done with what it does not hold")]
    item = state.items[message.item]
    wrong = _misfit(state, worker, item, message)
    if wrong:
        return [Refuse("misfit", f"item {item.id} of {worker.name}: {wrong}")]
    worker.busy_s += message.busy_s
    worker.items.discard(item.id)
    worker.inflight -= item.weight if item.route.host else 1
    state.rosters[worker.group.name].offer(worker)
    if item.order == GATE:
        del state.items[item.id]
        state.stale = True
        return gate_done(state, item, message)
    state.done = item
    return _done_in_step(state, worker, item, message)


def _done_in_step(state: State, worker: Worker, item: Item, message: Done) -> list[Action]:
    found, route = step_of(state, item), item.route
    _count(found, item, message)
    if message.metrics:
        _add_metrics(state, found, item, message.metrics)
    actions = _take_outputs(state, found, item, message)
    finish(found, route, item.units)
    if route.trains:
        _take_gradient(found, item, worker, message)
    if route.keeps:
        item.awaiting = set(item.units)
        found.awaited.setdefault(item.task, {}).update(dict.fromkeys(item.units, item))
        found.backward.add(item.id)
        return actions
    del state.items[item.id]
    if item.reads:
        actions += release(state, item.reads)
    return actions


def _misfit(state: State, worker: Worker, item: Item, message: Done) -> str:
    """What about the message cannot be an answer to the item; empty when it fits."""
    route, count, given = item.route, len(item.units), message.outputs
    more = len(given) - len(route.outputs)
    # Nearly all name them in the plan's order, and comparing tuples is quickest.
    usual = tuple(given) == route.outputs and len(route.owed) == len(given)
    if not usual and not route.owed <= given.keys() <= route.known:
        return f"streams {sorted(given)} in place of {sorted(route.owed)}"
    if tuple(message.sizes) != route.outputs and message.sizes.keys() != route.wanted:
        return f"sizes of {sorted(message.sizes)} in place of {sorted(route.wanted)}"
    token = worker.token
    for handles in given.values():
        if len(handles) != count:
            return "blocks that are not one for each unit"
        for handle in handles:
            if handle[OWNER] != token:
                return "blocks that are not its own"
    for sizes in message.sizes.values():
        if len(sizes) != count or min(sizes) < 0:
            return "sizes that are not one for each unit"
    if route.trains:
        if len(message.weights) != count or not all(map(_is_weight, message.weights)):
            return "weights that are not one for each unit"
        if more and _unawaited(state, item, given.keys() - route.wanted):
            return "a gradient that nobody waits for"
    if message.kept or message.dropped:
        return _foreign(state, item, message)
    return _unknown_agents(state, message) if message.metrics else ""


def _foreign(state: State, item: Item, message: Done) -> str:
    """What about the samples kept or dropped is wrong; else about the agents."""
    samples = set(item.samples)
    if item.order != GATE:
        found = step_of(state, item)
        samples = {sample for unit in item.units for sample in found.units[unit]}
    if not samples.issuperset(message.kept) or len(set(message.kept)) < len(message.kept):
        return "samples kept that it was not given"
    if not samples.issuperset(sample for sample, _ in message.dropped):
        return "samples dropped that it was not given"
    return _unknown_agents(state, message)


def _is_weight(weight: float) -> bool:
    return 0.0 <= weight < math.inf


def _unknown_agents(state: State, message: Done) -> str:
    named = {name[7:] for name in message.metrics if name.startswith("reward/")}
    unknown = named.difference(agent.name for agent in state.plan.graph.agents) if named else named
    return f"rewards of nobody: {sorted(unknown)}" if unknown else ""


def _unawaited(state: State, item: Item, gradients: Iterable[str]) -> bool:
    """Whether one is of a unit that no rank has kept the activations of."""
    awaited = step_of(state, item).awaited
    of = item.route.applies
    return any(unit not in awaited.get(of[g], {}) for g in gradients for unit in item.units)


def _take_outputs(state: State, found: Step, item: Item, message: Done) -> list[Action]:
    actions: list[Action] = []
    route, units = item.route, item.units
    for stream, handles in message.outputs.items():
        readers = route.readers.get(stream)
        if readers is None:
            for unit, handle in zip(units, handles, strict=True):
                actions += _gradient(state, found, route.applies[stream], unit, handle)
            continue
        blocks, sizes = found.blocks[stream], found.sizes[stream]
        for unit, handle, size in zip(units, handles, message.sizes[stream], strict=True):
            blocks[unit] = (handle,)
            sizes[unit] = size
            actions += retain(state, handle, readers)
    return actions


def _take_gradient(found: Step, item: Item, worker: Worker, message: Done) -> None:
    """The rank has added the item's gradient to its own part of the step's."""
    weights = found.weights.get(item.task)
    if weights is None:
        weights = found.weights[item.task] = [0.0] * len(found.units)
    for unit, weight in zip(item.units, message.weights, strict=True):
        weights[unit] = weight
    found.tokens += message.tokens
    _own(found, item, worker)


def _own(found: Step, item: Item, worker: Worker) -> None:
    """The worker has the gradients of the item's units."""
    owners = found.owners.setdefault(item.route.module, {})
    for unit in item.units:
        owners[unit] = worker.index


def _gradient(
    state: State, found: Step, apply: str, unit: int, handle: PlainHandle
) -> list[Action]:
    """A consumer's gradient of an encoder's output: goes back to the rank that made it."""
    actions = retain(state, handle, 1)
    got = found.gradients.setdefault(apply, {})
    got[unit] = handle
    item = found.awaited[apply].pop(unit)
    assert item.awaiting is not None
    item.awaiting.discard(unit)
    if not item.awaiting:
        message = Backward(
            item=item.id,
            task=item.task,
            units=item.units,
            gradients=tuple(got[u] for u in item.units),
        )
        actions.append(Send(worker=item.worker, message=message))
    return actions


def backward_done(state: State, event: BackwardDone) -> list[Action]:
    """A rank has an applied item's gradient; its activations are gone."""
    worker = state.workers[event.worker]
    item = state.items.get(event.item)
    if item is None or item.worker != worker.name or item.id in worker.items or item.awaiting:
        return [Refuse("out of turn", f"a backward of {worker.name} that it was not asked for")]
    del state.items[event.item]
    worker.busy_s += event.busy_s
    found = step_of(state, item)
    found.backward.discard(item.id)
    _own(found, item, worker)
    gradients = tuple(found.gradients[item.task].pop(unit) for unit in item.units)
    return release(state, (*gradients, *item.reads))


def _count(found: Step, item: Item, message: Done) -> None:
    """Conservation, in samples, over the task's own streams and those it hands over."""
    route, samples = item.route, item.weight
    dropped = len({sample for sample, _ in message.dropped}) if message.dropped else 0
    for stream, consumer in route.inner:
        record = found.record(stream, consumer)
        record.dropped += dropped
        record.consumed += samples - dropped
    for stream, consumer in route.border:
        found.record(stream, consumer).consumed += samples
    for stream in message.outputs:
        for made, consumer in route.handed.get(stream, ()):
            found.record(made, consumer).admitted += samples


def _add_metrics(state: State, found: Step, item: Item, metrics: Sums) -> None:
    task = item.route.task
    for name, (total, count) in metrics.items():
        sums = found.metrics.setdefault(state.topology.scope(task, found.variant, name), [0.0, 0.0])
        sums[0] += total
        sums[1] += count
