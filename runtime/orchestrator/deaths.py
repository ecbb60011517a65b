"""A worker is lost: what it held is given back, and a new process takes its place, or the run ends.

Laws: what was given back is done again, and counted once; what others wait for from the lost worker
ends here (its barrier) or goes on with its replacement (its items, its calls). A sample that kills
whoever has it is found by `suspects.py`.
"""

from flowgraph.runtime.messages import Failed
from flowgraph.runtime.orchestrator.blocks import release, retire
from flowgraph.runtime.orchestrator.calls import forget_caller, reissue
from flowgraph.runtime.orchestrator.completion import step_of
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    Death,
    Interrupted,
    Refuse,
    Start,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.held import let_go
from flowgraph.runtime.orchestrator.membership import GATE
from flowgraph.runtime.orchestrator.presence import finished
from flowgraph.runtime.orchestrator.restarts import Loss, Verdict, verdict
from flowgraph.runtime.orchestrator.state import Item, RunPhase, State, Worker, WorkerPhase
from flowgraph.runtime.orchestrator.suspects import accuse, condemned, excused
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.orchestrator.units import give_back, hold_back
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
    free = not ending and excused(state, worker, event)
    convicted = None if ending else condemned(state, worker, event)
    if convicted is not None:
        return [_end(state, convicted)]
    match verdict(worker.group.kind, Loss.GONE, left=max(left, free), ending=ending):
        case Verdict.REPLACE:
            state.restarts += not free
            return _replace(state, worker, event.death, what, now)
        case Verdict.IGNORE:
            worker.phase = advance(worker.name, worker.phase, WorkerPhase.LOST)
            worker.phase = advance(worker.name, worker.phase, WorkerPhase.STOPPED)
            return _forget_loads(state, worker) + let_go(state, worker) + finished(state)
        case _:
            return [_end(state, _lost(worker, event, what))]


def _end(state: State, abort: Abort) -> Abort:
    state.phase = advance("the run", state.phase, RunPhase.ENDED)
    return abort


def _lost(worker: Worker, event: WorkerDied, what: str) -> Abort:
    """Nobody takes its place; a sample that it had alone can be named, and replayed."""
    sample = worker.trial.alone if worker.trial else None
    return Abort(
        what=what,
        at=event.at,
        hint=f"see {event.log}",
        traceback=event.trace,
        sample=sample,
        lost=True,
    )


def _replace(state: State, worker: Worker, death: Death, what: str, now: float) -> list[Action]:
    """Take back what the worker had, and start its next process."""
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.LOST)
    state.full.pop(worker.name, None)
    actions = retire(state, worker) + let_go(state, worker)
    for item in [state.items.pop(number) for number in sorted(worker.items)]:
        _take_back(state, worker, item, death)
    worker.items.clear()
    worker.trial = None
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


def _take_back(state: State, worker: Worker, item: Item, death: Death) -> None:
    """The item's lease ends: its units wait for another worker, which reads the same blocks.

    One that is a suspect waits apart, for a worker that takes nothing else.
    """
    if worker.trial is not None:
        state.suspects.add(worker.trial)
        if worker.trial.probing:
            return  # the unit itself was in nobody's hands
        apart = True
    else:
        apart = accuse(state, item, tuple(_samples(state, item)), death)
    if item.order == GATE:
        if not apart:
            state.gate_again.append((item.units[0], item.samples))
            state.gate_again.sort()
        return
    found = step_of(state, item)
    (hold_back if apart else give_back)(found, item.route, item.units)
    for channel in found.tasks[item.task].channels[found.part_of[item.units[0]]].inner:
        channel.admitted -= item.weight


def _samples(state: State, item: Item) -> list[int]:
    if item.samples:
        return list(item.samples)
    found = step_of(state, item)
    return [sample for unit in item.units for sample in found.units[unit]]


def _sentence(state: State, worker: Worker, event: WorkerDied) -> str:
    """Whose death it is, how it came, and what was in its hands."""
    samples: list[int] = []
    stages: list[str] = []
    for item in [state.items[number] for number in sorted(worker.items)]:
        stages += state.plan.task(item.task).stages
        samples += _samples(state, item)
    where = f"stage '{', '.join(dict.fromkeys(stages))}'" if stages else f"'{worker.group.name}'"
    doing = f" while it held samples {_ranges(samples)}" if samples else ""
    if len(samples) == 1:
        doing = f" while it held sample {samples[0]} and nothing else"
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
