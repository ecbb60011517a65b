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


def dispatch(state: State) -> list[Action]:
    """Hand out all work that can be handed out now."""
    queue_steps(state)
    actions: list[Action] = []
    for place, step in enumerate(state.steps):
        if not form(state, step):
            break
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
    return min(fitting, key=lambda worker: (worker.inflight, worker.index), default=None)


def _ready(state: State, step: Step, task: Task, unit: int) -> bool:
    if step.status[task.name][unit] is not UnitStatus.WAITING:
        return False
    for stream in task.inputs:
        producer = state.plan.producer(stream)
        if step.status[producer.name][unit] is not UnitStatus.DONE:
            return False
    return True


def _next_units(state: State, step: Step, task: Task) -> tuple[int, ...]:
    """Units of the next item, or none when it must wait."""
    scope = step.parts[step.part] if _by_part(task) else range(len(step.units))
    if state.plan.schedule.mode == "barrier" and task.kind == "train":
        hosts = state.topology.of_kind("host")
        if any(s is not UnitStatus.DONE for host in hosts for s in step.status[host.name]):
            return ()
    ready = [unit for unit in scope if _ready(state, step, task, unit)]
    if not ready:
        return ()
    if state.exact or task.kind != "train":
        return (ready[0],)
    budget = int(state.topology.train_stage(task).attributes["micro_batch"])
    chosen: list[int] = []
    tokens = 0
    stream = task.inputs[0]
    for unit in ready:
        size = step.sizes[stream][unit]
        if chosen and tokens + size > budget:
            return tuple(chosen)
        chosen.append(unit)
        tokens += size
    more = any(
        step.status[task.name][unit] is UnitStatus.WAITING for unit in scope if unit not in chosen
    )
    return () if more and tokens < budget else tuple(chosen)


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
    for unit in units:
        step.status[task.name][unit] = UnitStatus.RUNNING
    worker.items.add(item.id)
    worker.inflight += cost(step, task, units)
    samples = tuple(step.units[unit] for unit in units)
    if step.variant == 0:
        for stream, consumer in state.topology.inner_streams(task):
            state.record(stream, consumer).admitted += sum(map(len, samples))
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
