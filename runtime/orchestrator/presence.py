"""Workers that come and go as they should: ready, told to stop, stopped; and the run's result."""

from collections.abc import Mapping

from flowgraph.runtime.messages import Ready, Stop, Stopped
from flowgraph.runtime.orchestrator.blocks import release
from flowgraph.runtime.orchestrator.calls import engine_ready
from flowgraph.runtime.orchestrator.events import Action, Finish, Refuse, Send, Tell
from flowgraph.runtime.orchestrator.held import let_go
from flowgraph.runtime.orchestrator.state import RunPhase, State, Worker, WorkerPhase
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.orchestrator.updates import load
from flowgraph.runtime.progress import RunResult, RunStarted, first_and_last

PRESENT = (WorkerPhase.READY, WorkerPhase.LOADING)


def ready(state: State, event: Ready, now: float) -> list[Action]:
    """A process can take work; in a run that goes on, an engine once it has the weights."""
    worker = state.workers[event.worker]
    if worker.phase is not WorkerPhase.STARTING:
        return [Refuse("repeated", f"{worker.name} is ready again")]
    for variant, size in event.sizes.items():
        state.source_sizes.setdefault(variant, size)  # membership must not change with a process
    if event.initial_digest:  # of the run's first weights: a checkpoint's are not those
        state.initial_digests.setdefault(worker.group.module, event.initial_digest)
    if state.phase is RunPhase.STOPPING:
        return [_stop(state, worker)]
    published = state.published.get(worker.group.module)
    if worker.group.kind == "engine" and published is not None:
        worker.phase = advance(worker.name, worker.phase, WorkerPhase.LOADING)
        return load(state, worker, published)
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.READY)
    if state.phase is RunPhase.RUNNING:
        return engine_ready(state, worker) if worker.group.kind == "engine" else []
    if not all(other.phase is WorkerPhase.READY for other in state.workers.values()):
        return []
    state.phase = advance("the run", state.phase, RunPhase.RUNNING)
    state.clock = now
    pool, spill = state.plan.pool_bytes, state.options.spill_bytes
    return [Tell(RunStarted(steps=state.total_steps, pool_bytes=pool, spill_bytes=spill))]


def stop(state: State) -> list[Action]:
    """All steps are over: end everybody who is there; who is not yet is ended when ready."""
    state.phase = advance("the run", state.phase, RunPhase.STOPPING)
    kept = [published.weights for published in state.published.values()]
    state.published.clear()
    actions = release(state, kept)
    for worker in state.workers.values():
        if worker.phase in PRESENT:
            actions.append(_stop(state, worker))
    return actions


def _stop(state: State, worker: Worker) -> Action:
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.STOPPING)
    checkpoint = f"{state.options.run_dir}/checkpoints/final"
    return Send(worker=worker.name, message=Stop(checkpoint=checkpoint))


def stopped(state: State, event: Stopped) -> list[Action]:
    """A worker ended as it was told to."""
    worker = state.workers[event.worker]
    if worker.phase is not WorkerPhase.STOPPING:
        return [Refuse("out of turn", f"{worker.name} has stopped without being told to")]
    worker.phase = advance(worker.name, worker.phase, WorkerPhase.STOPPED)
    if worker.group.kind == "gang" and worker.index == 0:
        state.digests[worker.group.module] = event.digest
        state.initial_digests.setdefault(worker.group.module, event.initial_digest)
    return let_go(state, worker) + finished(state)


def finished(state: State) -> list[Action]:
    """The run's end, once nobody is left."""
    if not all(worker.stopped for worker in state.workers.values()):
        return []
    state.phase = advance("the run", state.phase, RunPhase.ENDED)
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
        quarantined=len(state.quarantine.samples),
    )
