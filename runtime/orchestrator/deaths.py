"""A worker is lost: what it held is given back, and a new process takes its place, or the run ends.

Laws: what was given back is done again, and counted once; what others wait for from the lost worker
ends here (its barrier) or goes on with its replacement (its items, its calls).
"""

from flowgraph.runtime.messages import Failed
from flowgraph.runtime.orchestrator.blocks import release, retire
from flowgraph.runtime.orchestrator.calls import forget_caller, reissue
from flowgraph.runtime.orchestrator.completion import step_of
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    Interrupted,
    Refuse,
    Start,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.membership import GATE
from flowgraph.runtime.orchestrator.presence import finished
from flowgraph.runtime.orchestrator.restarts import Loss, Verdict, verdict
from flowgraph.runtime.orchestrator.state import Item, RunPhase, State, Worker, WorkerPhase
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.orchestrator.units import give_back
from flowgraph.runtime.orchestrator.updates import leave_barrier
from flowgraph.runtime.progress import Restarted


def interrupted(state: State, _: Interrupted) -> list[Action]:
    """The user ends the run."""
    return [_end(state, Abort(what="the run was interrupted"))]


def failed(state: State, event: Failed) -> list[Action]:
    """A worker says that it cannot go on, and ends."""
    sample = "" if event.sample is None else f", sample {event.sample}"
    loss = Loss.RAISED
    if event.lost_peer and state.workers[event.worker].group.kind == "gang":
        loss = Loss.PEER
    abort = Abort(
        what=f"stage '{event.stage}'{sample}: {event.cause} (in worker {event.worker})",
        at=event.at,
        hint=event.hint,
        traceback=event.traceback,
        stage=event.stage,
        cause=event.cause,
        sample=event.sample,
        training=event.training,
        lost=loss is Loss.PEER,
    )
    return [_end(state, abort)]


def died(state: State, event: WorkerDied, now: float) -> list[Action]:
    """A worker's process is gone without a word."""
    worker = state.workers[event.worker]
    if event.incarnation != worker.incarnation or worker.stopped:
        return [Refuse("late message", f"the end of {event.worker}, which was told before")]
    what = _sentence(state, worker, event)
    left = state.options.restarts - state.restarts
    ending = state.phase is RunPhase.STOPPING
    match verdict(worker.group.kind, Loss.GONE, left=left, ending=ending):
        case Verdict.REPLACE:
            return _replace(state, worker, what, now)
        case Verdict.IGNORE:
            worker.phase = advance(worker.name, worker.phase, WorkerPhase.LOST)
            worker.phase = advance(worker.name, worker.phase, WorkerPhase.STOPPED)
            return _forget_loads(state, worker) + finished(state)
        case _:
            return [_end(state, Abort(what=what, hint=f"see {event.log}", lost=True))]


def _end(state: State, abort: Abort) -> Abort:
    state.phase = advance("the run", state.phase, RunPhase.ENDED)
    return abort


def _replace(state: State, worker: Worker, what: str, now: float) -> list[Action]:
    """Take back what the worker had, and start its next process."""
    state.restarts += 1
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.LOST)
    actions = retire(state, worker)
    for item in [state.items.pop(number) for number in sorted(worker.items)]:
        _take_back(state, item)
    worker.items.clear()
    if worker.group.kind == "engine":
        actions += _forget_loads(state, worker)
        actions += reissue(state, worker)
    else:
        forget_caller(state, worker)
    worker.inflight = 0
    worker.asked.clear()
    worker.replace()
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.STARTING)
    state.living[worker.token] = worker.name
    restarted = Restarted(
        cause=what, restart=state.restarts, of=state.options.restarts, worker=worker.name
    )
    actions += [Tell(restarted), Start(worker.name, worker.incarnation)]
    return actions + leave_barrier(state, worker, now)


def _forget_loads(state: State, worker: Worker) -> list[Action]:
    """The weights that it was to load are read by one less."""
    loads = state.loading.pop(worker.name, ())
    return release(state, [published.weights for published in loads])


def _take_back(state: State, item: Item) -> None:
    """The item's lease ends: its units wait for another worker, which reads the same blocks."""
    task = state.plan.task(item.task)
    if item.order == GATE:
        state.gate_again.append((item.units[0], item.samples))
        state.gate_again.sort()
        return
    found = step_of(state, item)
    give_back(found, item.route, item.units)
    if found.variant == 0:
        samples = sum(len(found.units[unit]) for unit in item.units)
        for stream, consumer in state.topology.inner_streams(task):
            found.record(stream, consumer).admitted -= samples


def _sentence(state: State, worker: Worker, event: WorkerDied) -> str:
    """Whose death it is, how it came, and what was in its hands."""
    samples: list[int] = []
    stages: list[str] = []
    for item in [state.items[number] for number in sorted(worker.items)]:
        stages += state.plan.task(item.task).stages
        if item.order == GATE:
            samples += item.samples
        else:
            found = step_of(state, item)
            samples += [sample for unit in item.units for sample in found.units[unit]]
    where = f"stage '{', '.join(dict.fromkeys(stages))}'" if stages else f"'{worker.group.name}'"
    doing = f" while it held samples {_ranges(samples)}" if samples else ""
    return f"{where}: worker {event.worker} {event.how}{doing}"


def _ranges(samples: list[int]) -> str:
    """`[3, 4, 5, 9]` → "3-5, 9"."""
    spans: list[list[int]] = []
    for sample in sorted(set(samples)):
        if spans and spans[-1][1] + 1 == sample:
            spans[-1][1] = sample
        else:
            spans.append([sample, sample])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
