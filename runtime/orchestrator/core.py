"""`step(state, event, now) -> actions`: one event in, what to do about it out.

Deterministic and without I/O: the shell, the tests and the simulator drive this one function.
"""

from collections.abc import Mapping

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import (
    Answers,
    Backward,
    BackwardDone,
    Done,
    Failed,
    Generate,
    Generated,
    Issued,
    Loaded,
    PlainHandle,
    Ready,
    Saved,
    Stop,
    Stopped,
    Sums,
    Updated,
)
from flowgraph.runtime.orchestrator.blocks import release, retain
from flowgraph.runtime.orchestrator.checkpoints import saved
from flowgraph.runtime.orchestrator.dispatch import cost, dispatch
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    Event,
    Finish,
    Interrupted,
    Send,
    Started,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.membership import GATE, gate_done
from flowgraph.runtime.orchestrator.state import Item, RunPhase, State, Step, Worker
from flowgraph.runtime.orchestrator.units import finish
from flowgraph.runtime.orchestrator.updates import advance, loaded, updated
from flowgraph.runtime.progress import RunResult, RunStarted, first_and_last


def step(state: State, event: Event, now: float) -> list[Action]:
    """Take one event into the state and return what follows. now: seconds, monotonic.

    Raises InternalError for an event that cannot come in this state: a bug of ours.
    """
    if state.phase is RunPhase.ENDED:
        return []
    actions = _take(state, event, now)
    if state.phase is RunPhase.RUNNING:
        actions += _go_on(state, now)
    return actions


def _take(state: State, event: Event, now: float) -> list[Action]:
    match event:
        case Started():
            return []
        case Ready():
            return _ready(state, event, now)
        case Done():
            return _done(state, event)
        case BackwardDone():
            return _backward_done(state, event)
        case Issued():
            return _issued(state, event)
        case Generated():
            worker = state.workers[event.worker]
            worker.inflight -= len(event.completions)
            worker.busy_s += event.busy_s
            return [Send(worker=event.origin, message=Answers(completions=event.completions))]
        case Updated():
            return updated(state, event, now)
        case Loaded():
            return loaded(state, event, now)
        case Saved():
            return saved(state, event)
        case Stopped():
            return _stopped(state, event)
        case Failed() | WorkerDied() | Interrupted():
            return [_abort(state, event)]
        case _:
            raise InternalError(f"the orchestrator was sent a {type(event).__name__}")


def _ready(state: State, event: Ready, now: float) -> list[Action]:
    worker = state.workers[event.worker]
    worker.ready = True
    state.source_sizes.update(event.sizes)
    if event.initial_digest:
        state.initial_digests[worker.group.module] = event.initial_digest
    if not all(other.ready for other in state.workers.values()):
        return []
    state.phase = RunPhase.RUNNING
    state.clock = now
    return [Tell(RunStarted(steps=state.total_steps))]


def _go_on(state: State, now: float) -> list[Action]:
    """Hand out work and move steps on until nothing more follows."""
    actions: list[Action] = []
    while True:
        before = len(actions)
        actions += dispatch(state)
        if state.steps and not state.steps[0].began:
            state.steps[0].began = now
        moved = state.steps[0] if state.steps else None
        phase = (moved.phase, moved.part) if moved else None
        actions += advance(state, now)
        same = (state.steps[0] if state.steps else None) is moved
        same = same and (moved is None or (moved.phase, moved.part) == phase)
        if not state.steps and state.next_step > state.total_steps and not state.saving:
            return actions + _stop(state)
        if same and len(actions) == before:
            return actions


def _step_of(state: State, item: Item) -> Step:
    return next(found for found in state.steps if found.order == item.order)


def _leave(state: State, worker: Worker, item: Item, amount: int) -> None:
    worker.items.discard(item.id)
    worker.inflight -= amount


def _done(state: State, done: Done) -> list[Action]:
    worker, item = state.workers[done.worker], state.items[done.item]
    worker.busy_s += done.busy_s
    task = state.plan.task(item.task)
    if item.order == GATE:
        _leave(state, worker, item, state.topology.unit_samples(state.exact))
        worker.inflight = max(worker.inflight, 0)
        del state.items[item.id]
        return gate_done(state, item, done)
    found = _step_of(state, item)
    _leave(state, worker, item, cost(found, task, item.units))
    _count(state, found, item, done)
    _add_metrics(state, found, item, done.metrics)
    actions: list[Action] = []
    awaits = found.variant == 0 and task.kind == "apply" and state.topology.gradient_source(task)
    for stream, blocks in done.outputs.items():
        for unit, handle in zip(item.units, blocks, strict=True):
            if stream in task.outputs:
                found.blocks[stream][unit] = (handle,)
                readers = [t for t in state.topology.tasks_for(found.variant) if stream in t.inputs]
                actions += retain(state, handle, len(readers))
            else:
                actions += _gradient(state, found, stream, unit, handle)
    for stream, sizes in done.sizes.items():
        for unit, size in zip(item.units, sizes, strict=True):
            found.sizes[stream][unit] = size
    finish(state, found, task, item.units)
    if task.kind == "train" and found.variant == 0:
        weights = found.weights.setdefault(task.name, [0.0] * len(found.units))
        for unit, weight in zip(item.units, done.weights, strict=True):
            weights[unit] = weight
        found.tokens += done.tokens
        module = state.topology.module_of(task).name
        found.owners.setdefault(module, {}).update(dict.fromkeys(item.units, worker.index))
    if awaits:
        item.awaiting = set(item.units)
        found.backward.add(item.id)
        return actions
    del state.items[item.id]
    return actions + release(state, item.reads)


def _gradient(
    state: State, found: Step, stream: str, unit: int, handle: PlainHandle
) -> list[Action]:
    """A consumer's gradient of an encoder's output: goes back to the rank that made it."""
    apply = state.plan.producer(stream.removeprefix("gradient/"))
    actions = retain(state, handle, 1)
    got = found.gradients.setdefault(apply.name, {})
    got[unit] = handle
    for item in state.items.values():
        if item.order == found.order and item.task == apply.name and unit in item.awaiting:
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
    raise InternalError(f"a gradient of '{stream}' unit {unit} came for nobody")


def _backward_done(state: State, event: BackwardDone) -> list[Action]:
    worker, item = state.workers[event.worker], state.items.pop(event.item)
    worker.busy_s += event.busy_s
    found = _step_of(state, item)
    found.backward.discard(item.id)
    module = worker.group.module
    found.owners.setdefault(module, {}).update(dict.fromkeys(item.units, worker.index))
    gradients = tuple(found.gradients[item.task].pop(unit) for unit in item.units)
    return release(state, (*gradients, *item.reads))


def _issued(state: State, event: Issued) -> list[Action]:
    """Spread the calls over the agent's engines: the least loaded first, in contiguous shares."""
    engines = sorted(
        state.in_group(state.topology.engine_for(event.agent).name),
        key=lambda worker: (worker.inflight, worker.index),
    )
    total = len(event.calls) + sum(engine.inflight for engine in engines)
    actions: list[Action] = []
    begin = 0
    for place, engine in enumerate(engines):
        left = len(engines) - place
        fair = -(-total // left)
        take = min(max(fair - engine.inflight, 0), len(event.calls) - begin)
        total -= engine.inflight + take
        if take:
            calls = event.calls[begin : begin + take]
            begin += take
            engine.inflight += take
            message = Generate(origin=event.worker, agent=event.agent, calls=calls)
            actions.append(Send(worker=engine.name, message=message))
    return actions


def _count(state: State, found: Step, item: Item, done: Done) -> None:
    """Conservation, in samples, over the task's own streams and those it hands over."""
    if found.variant:
        return
    task = state.plan.task(item.task)
    samples = sum(len(found.units[unit]) for unit in item.units)
    dropped = len({sample for sample, _ in done.dropped})
    for stream, consumer in state.topology.inner_streams(task):
        record = found.record(stream, consumer)
        record.dropped += dropped
        record.consumed += samples - dropped
    for stream, consumer in state.topology.border_streams(task):
        found.record(stream, consumer).consumed += samples
    for stream in done.outputs:
        for reader in state.topology.consumers(stream):
            for made, consumer in state.topology.border_streams(reader):
                if made == stream:
                    found.record(stream, consumer).admitted += samples


def _add_metrics(state: State, found: Step, item: Item, metrics: Sums) -> None:
    task = state.plan.task(item.task)
    for name, (total, count) in metrics.items():
        scope, metric = state.topology.scope(task, found.variant, name)
        sums = found.metrics.setdefault((scope, metric), [0.0, 0.0])
        sums[0] += total
        sums[1] += count


def _stop(state: State) -> list[Action]:
    state.phase = RunPhase.STOPPING
    checkpoint = f"{state.options.run_dir}/checkpoints/final"
    stop = Stop(checkpoint=checkpoint)
    return [Send(worker=worker.name, message=stop) for worker in state.workers.values()]


def _stopped(state: State, event: Stopped) -> list[Action]:
    worker = state.workers[event.worker]
    worker.stopped = True
    if worker.group.kind == "gang" and worker.index == 0:
        state.digests[worker.group.module] = event.digest
        state.initial_digests[worker.group.module] = event.initial_digest
    if not all(other.stopped for other in state.workers.values()):
        return []
    state.phase = RunPhase.ENDED
    return [Finish(result(state))]


def result(state: State) -> RunResult:
    """The run so far, as `--json` prints it."""
    samples: dict[str, Mapping[str, int]] = {}
    for (stream, consumer), record in sorted(state.records.items()):
        samples[f"{stream}/{consumer}"] = {
            "admitted": record.admitted,
            "consumed": record.consumed,
            "dropped": record.dropped,
            "in_flight": record.in_flight,
        }
    return RunResult(
        steps=len(state.history),
        samples=samples,
        updates=dict(state.updates),
        metrics=first_and_last(state.history),
        evaluations=dict(state.evaluations),
        weights_digest=dict(sorted(state.digests.items())),
        initial_digest=dict(sorted(state.initial_digests.items())),
    )


def _abort(state: State, event: Failed | WorkerDied | Interrupted) -> Abort:
    state.phase = RunPhase.ENDED
    if isinstance(event, Interrupted):
        return Abort(what="the run was interrupted")
    if isinstance(event, Failed):
        sample = "" if event.sample is None else f", sample {event.sample}"
        return Abort(
            what=f"stage '{event.stage}'{sample}: {event.cause} (in worker {event.worker})",
            at=event.at,
            traceback=event.traceback,
            stage=event.stage,
            sample=event.sample,
            lost=event.lost_peer,
        )
    return _death(state, event)


def _death(state: State, event: WorkerDied) -> Abort:
    worker = state.workers[event.worker]
    held = [state.items[i] for i in sorted(worker.items)]
    samples: list[int] = []
    stages: list[str] = []
    for item in held:
        stages += state.plan.task(item.task).stages
        if item.order != GATE:
            found = _step_of(state, item)
            samples += [sample for unit in item.units for sample in found.units[unit]]
    where = f"stage '{', '.join(dict.fromkeys(stages))}'" if stages else f"'{worker.group.name}'"
    doing = f" while it held samples {_ranges(samples)}" if samples else ""
    what = f"{where}: worker {event.worker} {event.how}{doing}"
    return Abort(what=what, hint=f"see {event.log}", lost=True)


def _ranges(samples: list[int]) -> str:
    """`[3, 4, 5, 9]` → "3-5, 9"."""
    spans: list[list[int]] = []
    for sample in sorted(set(samples)):
        if spans and spans[-1][1] + 1 == sample:
            spans[-1][1] = sample
        else:
            spans.append([sample, sample])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
