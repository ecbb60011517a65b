"""Who gets work: units that are ready go to the least loaded worker that has room.

Guarantees: a unit is handed out once per task; a versioned task runs only at its step's version;
a training item holds complete units and is sent when it fills a micro-batch, or when no more can
come; in exact mode an item is one chunk.
"""

from flowgraph.ir.plan import Task
from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.orchestrator.events import Action, Send
from flowgraph.runtime.orchestrator.membership import form, queue_steps, run_gate
from flowgraph.runtime.orchestrator.state import Item, Phase, State, Step, UnitStatus, Worker
from flowgraph.runtime.orchestrator.units import start


def dispatch(state: State) -> list[Action]:
    """Hand out all work that can be handed out now."""
    queue_steps(state)
    actions: list[Action] = []
    for place, step in enumerate(state.steps):
        if not form(state, step):
            break
        if step.variant == 0 and not step.samples:
            break  # the source has ended: what is queued behind this step will not be
        if place == 0 and step.phase is Phase.AHEAD:
            step.phase = Phase.WORKING
        for task in state.topology.tasks_for(step.variant):
            if place and task.versioned:
                continue
            actions += _dispatch_task(state, step, task)
    actions += _gate(state)
    return actions


def _gate(state: State) -> list[Action]:
    actions: list[Action] = []
    for worker in state.workers.values():
        while worker.group.kind == "stage" and room(state, worker) > 0:
            sent = run_gate(state, worker)
            if not sent:
                break
            actions += sent
    return actions


def _dispatch_task(state: State, step: Step, task: Task) -> list[Action]:
    if step.phase in (Phase.UPDATING, Phase.SYNCING, Phase.FINISHED) and task.versioned:
        return []
    actions: list[Action] = []
    while True:
        worker = _worker_for(state, task)
        if worker is None:
            return actions
        units = _next_units(state, step, task)
        if not units:
            return actions
        actions.append(_send(state, step, task, units, worker))


def room(state: State, worker: Worker) -> int:
    """Samples (stage workers) or items (gangs) that it may still take; at least one when idle."""
    limit = worker.group.in_flight
    return max(limit - worker.inflight, 0 if worker.items else 1)


def _worker_for(state: State, task: Task) -> Worker | None:
    fitting = [worker for worker in state.in_group(task.group) if room(state, worker) > 0]
    return min(
        fitting, key=lambda worker: (worker.inflight, worker.served, worker.index), default=None
    )


def _next_units(state: State, step: Step, task: Task) -> tuple[int, ...]:
    """Units of the next item, or none when it must wait."""
    progress = step.tasks[task.name]
    if not progress.ready:
        return ()
    if state.plan.schedule.mode == "barrier" and task.kind == "train":
        hosts = state.topology.of_kind("host")
        if not all(step.tasks[host.name].all_done for host in hosts):
            return ()
    by_part = _by_part(task)
    if by_part and step.part_of[progress.ready[0]] != step.part:
        return ()
    if state.exact or task.kind != "train":
        return (progress.ready[0],)
    return _micro_batch(state, step, task)


def _micro_batch(state: State, step: Step, task: Task) -> tuple[int, ...]:
    """Ready units that fill the budget, or all that will come when they are all there."""
    progress = step.tasks[task.name]
    budget = int(state.topology.train_stage(task).attributes["micro_batch"])
    sizes = step.sizes[task.inputs[0]]
    scope = step.parts[step.part]
    share = -(-len(scope) // state.plan.group(task.group).replicas)  # no rank idles for another
    chosen: list[int] = []
    tokens = 0
    for unit in progress.ready:
        if unit not in scope:
            break
        if chosen and (tokens + sizes[unit] > budget or len(chosen) == share):
            return tuple(chosen)
        chosen.append(unit)
        tokens += sizes[unit]
    given = sum(
        status is not UnitStatus.WAITING for status in progress.status[scope.start : scope.stop]
    )
    more = len(scope) - given > len(chosen)
    return () if more and tokens < budget and len(chosen) < share else tuple(chosen)


def _by_part(task: Task) -> bool:
    """Apply and train run at the weights of their own part; episodes at the step's first."""
    return task.kind in ("apply", "train") and task.versioned


def _send(state: State, step: Step, task: Task, units: tuple[int, ...], worker: Worker) -> Action:
    inputs: dict[str, tuple[tuple[PlainHandle, ...], ...]] = {}
    reads: list[PlainHandle] = []
    for stream in task.inputs:
        per_unit = tuple(step.blocks[stream][unit] for unit in units)
        reads += [handle for handles in per_unit for handle in handles]
        inputs[stream] = tuple(tuple(dict.fromkeys(handles)) for handles in per_unit)
    item = Item(
        id=state.next_item,
        order=step.order,
        task=task.name,
        units=units,
        worker=worker.name,
        reads=tuple(reads),
    )
    state.next_item += 1
    state.items[item.id] = item
    start(step, task, units)
    worker.items.add(item.id)
    worker.inflight += cost(step, task, units)
    worker.served += len(units)
    samples = tuple(step.units[unit] for unit in units)
    if step.variant == 0:
        for stream, consumer in state.topology.inner_streams(task):
            step.record(stream, consumer).admitted += sum(map(len, samples))
    message = Run(
        item=item.id,
        task=task.name,
        variant=step.variant,
        step=step.step,
        part=step.part,
        version=state.version,
        units=units,
        samples=samples,
        inputs=inputs,
        outputs=state.topology.outputs_for(task, step.variant),
    )
    return Send(worker=worker.name, message=message)


def cost(step: Step, task: Task, units: tuple[int, ...]) -> int:
    """What the item adds to a worker's `inflight`."""
    return sum(len(step.units[unit]) for unit in units) if task.kind == "host" else 1
