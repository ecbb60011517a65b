"""Which samples a step has: the first N of the source's order that pass the filters.

Never decided by arrival: verdicts are taken in the order of positions, whoever came first.
"""

from array import array
from collections.abc import Sequence

from flowgraph.ir.plan import Task
from flowgraph.runtime.messages import Done, PlainHandle, Run
from flowgraph.runtime.orchestrator.blocks import retain
from flowgraph.runtime.orchestrator.drought import HINT, drought
from flowgraph.runtime.orchestrator.events import Abort, Action, Send
from flowgraph.runtime.orchestrator.quarantine import walk
from flowgraph.runtime.orchestrator.state import Item, RunPhase, State, Step, Worker
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.orchestrator.units import begin, settle
from flowgraph.runtime.topology import divide, evaluation_due

GATE = -1
"""`Item.order` of work that decides membership and belongs to no step yet."""


def queue_steps(state: State) -> None:
    """Keep the present step and those that may run ahead in the queue, evaluations between."""
    ahead = state.plan.schedule.ahead
    while len(state.steps) <= ahead and state.next_step <= state.total_steps:
        step = state.next_step
        for variant, stage in enumerate(state.topology.variants(), start=1):
            if evaluation_due(stage, step, state.total_steps):
                _push(state, variant, step)
        if step < state.total_steps:
            _push(state, 0, step)
        state.next_step += 1


def _push(state: State, variant: int, step: int) -> None:
    state.steps.append(Step(order=state.next_order, variant=variant, step=step))
    state.next_order += 1


def form(state: State, step: Step) -> bool:
    """Fix the step's membership once it is known. False while it is not."""
    if step.formed:
        return True
    samples = _samples(state, step)
    if samples is None:
        return False
    unit = state.topology.unit_samples(state.exact)
    step.samples = samples
    updates = state.plan.schedule.updates if step.variant == 0 else 1
    step.units, step.parts = divide(samples, unit, updates)
    count = len(step.units)
    for route in state.routes[step.variant].of.values():
        for stream in route.task.outputs:
            step.blocks[stream] = [()] * count
            step.unread[stream] = bytearray([route.readers[stream]]) * count
            step.sizes[stream] = array("q", [0]) * count
    begin(state, step)
    for task in [] if step.variant else [task for task in state.plan.tasks if not task.gated]:
        _take_gate_blocks(state, step, task)
        settle(step, state.routes[0].of[task.name])
    step.formed = True
    return True


def _samples(state: State, step: Step) -> Sequence[int] | None:
    if step.variant:
        count = int(state.topology.variants()[step.variant - 1].attributes["samples"])
        size = state.source_sizes.get(str(step.variant), -1)
        return tuple(range(count if size < 0 else min(count, size)))
    batch = state.plan.schedule.batch
    at_end, size = source_end(state)
    if not state.topology.has_filters():
        taken, state.gate_cursor = walk(
            state.quarantine, state.gate_cursor, batch, size=size, loop=at_end == "loop"
        )
        return () if len(taken) < batch and at_end == "drop" else taken
    admitted = state.gate_admitted
    over = at_end != "loop" and 0 <= size <= state.gate_next
    over = over or state.quarantine.everything(state.gate_next, size)
    if len(admitted) < batch and not over:
        return None
    take = min(batch, len(admitted))
    if take < batch and at_end == "drop":
        take = 0
    return tuple(admitted.popleft() for _ in range(take))


def source_end(state: State) -> tuple[str, int]:
    """The source's policy at its end, and its size (-1: endless or not measured)."""
    source = state.plan.graph.by_op("source")[0]
    return str(source.attributes.get("at_end", "loop")), state.source_sizes.get("0", -1)


def gate_task(state: State) -> Task | None:
    """The task of the source and its filters, when there are filters."""
    return state.gate


def run_gate(state: State, worker: Worker) -> list[Action]:
    """Hand the worker the next block of source positions, if more samples are wanted."""
    task = gate_task(state)
    if task is None or task.group != worker.group.name:
        return []
    if state.gate_again:
        return [hand_over(state, worker, task, *state.gate_again.pop(0))]
    block = _next_block(state)
    return [hand_over(state, worker, task, *block)] if block else []


def _next_block(state: State) -> tuple[int, tuple[int, ...]] | None:
    """Where the next block of positions begins, and those of it that are not put aside; None when
    no more are wanted now, or none are left.
    """
    at_end, size = source_end(state)
    schedule = state.plan.schedule
    unit = state.topology.unit_samples(state.exact)
    while True:
        start, end = state.gate_cursor, state.gate_cursor + unit
        if at_end != "loop" and size >= 0:
            end = min(end, size)
        wanted = len(state.gate_admitted) < schedule.batch * (schedule.ahead + 1)
        if not wanted or state.gate_cursor + unit > state.gate_next + _window(state, unit):
            return None
        if start >= end or state.quarantine.everything(start, size):
            return None
        state.gate_cursor = end
        samples = tuple(at for at in range(start, end) if not state.quarantine.excludes(at, size))
        if samples:
            return start, samples
        state.gate_kept[start] = ((), {})
        _take_verdicts(state)


def hand_over(
    state: State, worker: Worker, task: Task, start: int, samples: tuple[int, ...]
) -> Action:
    """The block of positions that begins at `start`; to another worker again when one is lost."""
    item = Item(
        id=state.next_item,
        order=GATE,
        task=task.name,
        units=(start,),
        worker=worker.name,
        route=state.routes[0].of[task.name],
        weight=len(samples),
        samples=samples,
    )
    state.next_item += 1
    state.items[item.id] = item
    worker.items.add(item.id)
    worker.inflight += len(samples)
    message = Run(
        item=item.id,
        task=task.name,
        variant=0,
        step=-1,
        part=0,
        version=state.version,
        units=(start,),
        samples=(samples,),
        inputs={},
        outputs=state.topology.outputs_for(task, 0),
    )
    return Send(worker=worker.name, message=message)


def _window(state: State, unit: int) -> int:
    """Positions that may be with the filters at once. Without an end to it, what others keep while
    one worker is late would fill the pools, and with them the room that the late one waits for.
    """
    schedule = state.plan.schedule
    workers = sum(group.replicas for group in state.plan.groups if group.kind == "stage")
    return max(2 * schedule.batch * (schedule.ahead + 1), unit * (workers + 1))


def gate_done(state: State, item: Item, done: Done) -> list[Action]:
    """Take the verdicts that are next in order, and count the readers of what was kept."""
    first = item.units[0]
    kept = tuple(sample for sample in done.kept if sample >= state.gate_from)
    handles = {stream: blocks[0] for stream, blocks in done.outputs.items()}
    actions: list[Action] = []
    for stream, handle in handles.items():
        readers = len(state.topology.consumers(stream))
        actions += retain(state, handle, readers * len(kept))
    state.gate_kept[first] = (kept, handles)
    _take_verdicts(state)
    at_end, records = source_end(state)
    what = drought(state.gate_dropped, records) if at_end == "loop" else None
    if what is not None:
        state.phase = advance("the run", state.phase, RunPhase.ENDED)
        actions.append(Abort(what=what, hint=HINT))
    return actions


def _take_verdicts(state: State) -> None:
    size = state.topology.unit_samples(state.exact)
    at_end, total = source_end(state)
    while state.gate_next in state.gate_kept:
        start = state.gate_next
        kept, blocks = state.gate_kept.pop(start)
        state.gate_next = start + size
        state.gate_dropped = 0 if kept else state.gate_dropped + size
        if at_end != "loop" and total >= 0:
            state.gate_next = min(state.gate_next, total)
        state.gate_admitted.extend(kept)
        state.stale = True
        for sample in kept:
            state.gate_blocks[sample] = blocks


def _count_gate(state: State, step: Step, task: Task) -> None:
    """Positions up to a part's last sample were seen by the filters; its samples passed."""
    _, size = source_end(state)
    pairs = state.routes[0].of[task.name].inner
    filters = [state.plan.graph.stage(consumer).op == "filter" for _, consumer in pairs]
    for scope, channels in zip(step.parts, step.tasks[task.name].channels, strict=True):
        if not scope:
            continue
        positions = range(state.gate_recorded, step.units[scope[-1]][-1] + 1)
        seen = len(positions)
        if state.quarantine.samples:
            seen -= sum(state.quarantine.excludes(at, size) for at in positions)
        state.gate_recorded = positions.stop
        kept = sum(len(step.units[unit]) for unit in scope)
        for channel, filtered in zip(channels.inner, filters, strict=True):
            channel.admitted += seen
            channel.consumed += kept if filtered else seen
            channel.dropped += seen - kept if filtered else 0
        for channel in channels.hands:
            channel.admitted += kept


def _take_gate_blocks(state: State, step: Step, task: Task) -> None:
    _count_gate(state, step, task)
    for stream in state.topology.outputs_for(task, 0):
        per_unit: list[tuple[PlainHandle, ...]] = []
        for samples in step.units:
            per_unit.append(tuple(state.gate_blocks[sample][stream] for sample in samples))
        step.blocks[stream] = per_unit
    for sample in step.samples:
        state.gate_blocks.pop(sample)
