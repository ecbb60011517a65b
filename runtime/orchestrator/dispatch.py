"""Who gets work: units that are ready go to the least loaded worker that has room.

Guarantees: a unit is handed out once per task; a versioned task runs only at its step's version;
a training item holds complete units and is sent when it fills a micro-batch, or when no more can
come; in exact mode an item is one chunk.

After most events only few tasks can have become possible; `dispatch_after` looks at those alone,
so that an event costs the same however much is in flight.
"""

from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.orchestrator.channels import more_can_come
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.orchestrator.membership import form, gate_task, queue_steps, run_gate
from flowgraph.runtime.orchestrator.routes import Route
from flowgraph.runtime.orchestrator.state import Item, Phase, State, Step, TaskProgress, Worker
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.orchestrator.units import first_ready, lease

MOVING = (Phase.UPDATING, Phase.SYNCING, Phase.FINISHED)
"""Phases of a step in which nothing runs at its version any more."""


def dispatch(state: State) -> list[Action]:
    """Hand out all work that can be handed out now, whatever has happened."""
    queue_steps(state)
    for roster in state.rosters.values():
        roster.look()
    actions: list[Action] = []
    for place, step in enumerate(state.steps):
        if not form(state, step):
            break
        if step.variant == 0 and not step.samples:
            break  # the source has ended: what is queued behind this step will not be
        if place == 0 and step.phase is Phase.AHEAD:
            step.phase = advance(f"step {step.step}", step.phase, Phase.WORKING)
        for route in state.routes[step.variant].of.values():
            if place == 0 or not route.task.versioned:
                _dispatch_task(state, step, route, actions)
    gate = gate_task(state)
    if gate is not None:
        for worker in state.in_group(gate.group):
            _dispatch_gate(state, worker, actions)
    return actions


def dispatch_after(state: State, item: Item) -> list[Action]:
    """Hand out what has become possible by one item's end."""
    actions: list[Action] = []
    done, group = item.route, item.route.task.group
    for place, step in enumerate(state.steps):
        if not step.formed or (step.variant == 0 and not step.samples):
            break
        routes = state.routes[step.variant]
        possible = (
            routes.after[done.task.name] if step.order == item.order else routes.on.get(group, ())
        )
        for route in possible:
            if place == 0 or not route.task.versioned:
                _dispatch_task(state, step, route, actions)
    if done.host:
        gate = gate_task(state)
        if gate is not None and gate.group == group:
            _dispatch_gate(state, state.workers[item.worker], actions)
    return actions


def _dispatch_gate(state: State, worker: Worker, actions: list[Action]) -> None:
    while worker.room > 0:
        sent = run_gate(state, worker)
        if not sent:
            return
        actions += sent
        state.rosters[worker.group.name].offer(worker)


def _dispatch_task(state: State, step: Step, route: Route, actions: list[Action]) -> None:
    task = route.task
    progress = step.tasks[task.name]
    count = len(progress.status)
    if (progress.fresh == count and not progress.ready) or (
        task.versioned and step.phase in MOVING
    ):
        return
    roster = state.rosters[task.group]
    while progress.ready or progress.fresh < count:
        worker = roster.best()
        if worker is None:
            return
        units = _next_units(step, route, progress)
        if not units:
            return
        actions.append(send_units(state, step, route, units, worker))
        roster.handed(worker)


def _next_units(step: Step, route: Route, progress: TaskProgress) -> tuple[int, ...]:
    """Units of the next item, or none when it must wait."""
    if route.after and not all(step.tasks[name].all_done for name in route.after):
        return ()
    if route.by_part and step.part_of[first_ready(progress)] != step.part:
        return ()
    return _micro_batch(step, route, progress) if route.fills else (lease(step, progress),)


def _micro_batch(step: Step, route: Route, progress: TaskProgress) -> tuple[int, ...]:
    """Ready units that fill the budget, or all that will come when they are all there."""
    part, budget = step.part, route.micro_batch
    scope = step.parts[part]
    share = -(-len(scope) // route.ranks)  # no rank idles for another
    there = progress.ready_units[part]
    full = there >= share or progress.ready_tokens[part] >= budget
    if not there or (not full and more_can_come(progress, part)):
        return ()
    sizes, ready = progress.sizes, progress.ready
    assert sizes is not None
    chosen: list[int] = []
    tokens = 0
    while ready and ready[0] in scope:
        size = sizes[ready[0]]
        if chosen and (tokens + size > budget or len(chosen) == share):
            break
        chosen.append(lease(step, progress))
        tokens += size
    return tuple(chosen)


def send_units(
    state: State, step: Step, route: Route, units: tuple[int, ...], worker: Worker
) -> Action:
    task = route.task
    inputs, reads = inputs_of(step, route, units)
    if len(units) == 1:
        samples: tuple[tuple[int, ...], ...] = (step.units[units[0]],)
        weight = len(samples[0])
    else:
        samples = tuple([step.units[unit] for unit in units])
        weight = sum(map(len, samples))
    number = state.next_item
    state.next_item = number + 1
    state.items[number] = Item(
        number, step.order, task.name, units, worker.name, route, weight, reads
    )
    worker.items.add(number)
    worker.inflight += weight if route.host else 1
    worker.served += len(units)
    for channel in step.tasks[task.name].channels[step.part_of[units[0]]].inner:
        channel.admitted += weight
    message = Run(
        item=number,
        task=task.name,
        variant=step.variant,
        step=step.step,
        part=step.part,
        version=state.version,
        units=units,
        samples=samples,
        inputs=inputs,
        outputs=route.outputs,
    )
    return Send(worker=worker.name, message=message)


def inputs_of(
    step: Step, route: Route, units: tuple[int, ...]
) -> tuple[dict[str, tuple[tuple[PlainHandle, ...], ...]], tuple[PlainHandle, ...]]:
    """By stream, by unit, the blocks to read; and a reader's share of each, one behind another."""
    inputs: dict[str, tuple[tuple[PlainHandle, ...], ...]] = {}
    reads: tuple[PlainHandle, ...] = ()
    for stream in route.task.inputs:
        blocks = step.blocks[stream]
        if len(units) == 1:
            handles = blocks[units[0]]
            reads += handles
            inputs[stream] = (handles if len(handles) == 1 else tuple(dict.fromkeys(handles)),)
        else:
            per_unit = [blocks[unit] for unit in units]
            reads += tuple([handle for handles in per_unit for handle in handles])
            inputs[stream] = tuple([tuple(dict.fromkeys(handles)) for handles in per_unit])
    return inputs, reads
