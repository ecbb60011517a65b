"""What workers have done: items finished, gradients brought back, and what that makes ready.

A message is looked at as a whole before any of it is taken: one that does not fit what the worker
was asked for is refused, and changes nothing.
"""

import math
from array import array
from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import Backward, BackwardDone, Done, PlainHandle, Sums
from flowgraph.runtime.orchestrator.blocks import OWNER, release, retain
from flowgraph.runtime.orchestrator.events import Action, Refuse, Send
from flowgraph.runtime.orchestrator.held import hold, is_foreign
from flowgraph.runtime.orchestrator.membership import GATE, gate_done
from flowgraph.runtime.orchestrator.state import Item, State, Step, Worker
from flowgraph.runtime.orchestrator.suspects import acquit
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
    if worker.trial is not None and worker.trial.probing:
        return _probed(state, worker, item, message)
    wrong = _misfit(state, worker, item, message)
    if wrong:
        return [Refuse("misfit", f"item {item.id} of {worker.name}: {wrong}")]
    worker.busy_s += message.busy_s
    worker.items.discard(item.id)
    worker.inflight -= item.weight if item.route.host else 1
    if worker.trial is not None:
        acquit(state, worker)
    if state.full:
        state.full.pop(worker.name, None)
    state.rosters[worker.group.name].offer(worker)
    if item.order == GATE:
        del state.items[item.id]
        state.stale = True
        return gate_done(state, item, message)
    state.done = item
    return _done_in_step(state, worker, item, message)


def _probed(state: State, worker: Worker, item: Item, message: Done) -> list[Action]:
    """A sample that was tried alone got through; nothing that it gave is wanted."""
    if message.outputs or is_foreign(message.held, item.reads):
        what = f"item {item.id} of {worker.name}: outputs of a sample that was only tried"
        return [Refuse("misfit", what)]
    if message.held:
        hold(state, worker, item, step_of(state, item), item.reads, message.held)
    worker.busy_s += message.busy_s
    worker.items.discard(item.id)
    worker.inflight -= item.weight
    del state.items[item.id]
    acquit(state, worker)
    return []


def _done_in_step(state: State, worker: Worker, item: Item, message: Done) -> list[Action]:
    found, route = step_of(state, item), item.route
    _count(found, item, message)
    if message.metrics:
        _add_metrics(state, found, item, message.metrics)
    actions = _take_outputs(state, found, item, message)
    finish(found, route, item.units)
    if route.trains:
        _take_gradient(state, found, item, worker, message)
    if route.keeps:
        item.awaiting = set(item.units)
        found.awaited.setdefault(item.task, {}).update(dict.fromkeys(item.units, item))
        found.backward.add(item.id)
        return actions
    del state.items[item.id]
    if message.held:
        hold(state, worker, item, found, item.reads, message.held)
    if item.reads:
        _read(found, item)
        actions += release(state, item.reads)
    return actions


def _read(found: Step, item: Item) -> None:
    """The task is done with its inputs: who reads a block last lets it be forgotten."""
    for stream in item.route.task.inputs:
        unread, blocks = found.unread[stream], found.blocks[stream]
        for unit in item.units:
            unread[unit] -= 1
            if not unread[unit]:
                blocks[unit] = ()


def _misfit(state: State, worker: Worker, item: Item, message: Done) -> str:
    """What about the message cannot be an answer to the item; empty when it fits."""
    route, count, given = item.route, len(item.units), message.outputs
    # Nearly all name them in the plan's order, and comparing tuples is quickest.
    usual = tuple(given) == route.outputs and not route.owes
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
        if len(message.weights) != count or not _are_weights(message.weights):
            return "weights that are not one for each unit"
        if not usual and _unawaited(state, item, given.keys() - route.wanted):
            return "a gradient that nobody waits for"
    if message.held and (route.keeps or is_foreign(message.held, item.reads)):
        return "blocks held that it was not given, or has not done with"
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


def _are_weights(weights: tuple[float, ...]) -> bool:
    """Whether none is negative, infinite, or no number: the sum shows the last two."""
    return min(weights) >= 0.0 and sum(weights) < math.inf


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
            sizes[unit] = size
            if readers:
                blocks[unit] = (handle,)
            actions += retain(state, handle, readers)
    return actions


def _take_gradient(state: State, found: Step, item: Item, worker: Worker, message: Done) -> None:
    """The rank has added the item's gradient to its own part of the step's."""
    weights = found.weights.get(item.task)
    if weights is None:
        weights = found.weights[item.task] = array("d", [0.0]) * len(found.units)
    for unit, weight in zip(item.units, message.weights, strict=True):
        weights[unit] = weight
    found.tokens += message.tokens
    if state.exact:
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
    found = step_of(state, item)
    reads = (*(found.gradients[item.task][unit] for unit in item.units), *item.reads)
    if event.held and is_foreign(event.held, reads):
        return [Refuse("misfit", f"a backward of {worker.name} holds blocks that it was not given")]
    del state.items[event.item]
    worker.busy_s += event.busy_s
    found.backward.discard(item.id)
    if state.exact:
        _own(found, item, worker)
    if event.held:
        hold(state, worker, item, found, reads, event.held)
    _read(found, item)
    for unit in item.units:
        del found.gradients[item.task][unit]
    return release(state, reads)


def _count(found: Step, item: Item, message: Done) -> None:
    """Conservation, in samples, over the task's own streams and those it hands over."""
    samples = item.weight
    dropped = len({sample for sample, _ in message.dropped}) if message.dropped else 0
    channels = found.tasks[item.task].channels[found.part_of[item.units[0]]]
    for channel in channels.inner:
        channel.dropped += dropped
        channel.consumed += samples - dropped
    for channel in channels.reads:
        channel.consumed += samples
    for channel in channels.hands:
        channel.admitted += samples


def _add_metrics(state: State, found: Step, item: Item, metrics: Sums) -> None:
    task = item.route.task
    for name, (total, count) in metrics.items():
        sums = found.metrics.setdefault(state.topology.scope(task, found.variant, name), [0.0, 0.0])
        sums[0] += total
        sums[1] += count
