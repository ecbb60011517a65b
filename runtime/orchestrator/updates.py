"""When weights move: after all gradients of a part, in all modules together.

Law: all trained modules are at one version outside `UPDATING`; engines are at the step's version
before any versioned work of the step is handed out; a module without samples moves too.
The last published weights are kept until the step's last update begins, when no versioned work is
left: so an engine that is replaced meanwhile can have them.
"""

from collections import deque

from flowgraph.runtime.messages import Load, Loaded, Update, Updated
from flowgraph.runtime.orchestrator.blocks import OWNER, release, retain
from flowgraph.runtime.orchestrator.calls import engine_ready
from flowgraph.runtime.orchestrator.channels import add_to, check_closed
from flowgraph.runtime.orchestrator.checkpoints import checkpoint
from flowgraph.runtime.orchestrator.events import Action, Refuse, Send, Tell
from flowgraph.runtime.orchestrator.state import (
    ModulePhase,
    Phase,
    Published,
    State,
    Step,
    Worker,
    WorkerPhase,
)
from flowgraph.runtime.orchestrator.transitions import advance
from flowgraph.runtime.progress import EvaluationFinished, StepFinished

WORKING = Phase.WORKING  # a name is found faster than an enum's member


def move_on(state: State, now: float) -> list[Action]:
    """Move the present step on as far as it can go."""
    if not state.steps or not state.steps[0].formed:
        return []
    step = state.steps[0]
    if step.variant == 0 and not step.samples:
        return _end_of_source(state, step)
    if step.phase is not WORKING or not _part_done(step):
        return []
    if step.variant:
        return _finish_evaluation(state, step)
    return _begin_update(state, step, now)


def _part_done(step: Step) -> bool:
    """Whether nothing of the part is left, and nothing at all if it is the last."""
    if step.backward or step.left_of[step.part]:
        return False
    last = step.part + 1 == len(step.parts)
    return not last or all(progress.all_done for progress in step.tasks.values())


def _begin_update(state: State, step: Step, now: float) -> list[Action]:
    step.phase = advance(f"step {step.step}", step.phase, Phase.UPDATING)
    last = step.part + 1 == len(step.parts)
    scope = step.parts[step.part]
    actions: list[Action] = []
    for module in state.topology.trained_modules():
        _set(state, module, ModulePhase.UPDATING)
        if last and module in state.published:
            actions += release(state, [state.published.pop(module).weights])
        weights = step.weights.get(state.topology.loss_task(module).name)
        owners = step.owners.get(module, {})
        message = Update(
            step=step.step,
            part=step.part,
            version=state.version + 1,
            divisor=float(sum(weights[scope.start : scope.stop])) if weights else 0.0,
            owners=tuple((unit, owners[unit]) for unit in scope if unit in owners),
            publish=last and bool(state.topology.engines(module)),
        )
        for worker in state.in_group(state.topology.gang(module).name):
            step.waiting_for.add(worker.name)
            actions.append(Send(worker=worker.name, message=message))
    if not step.waiting_for:  # nothing is trained
        actions += _all_updated(state, step, now)
    return actions


def _set(state: State, module: str, after: ModulePhase) -> None:
    state.modules[module] = advance(f"module '{module}'", state.modules[module], after)


def updated(state: State, message: Updated, now: float) -> list[Action]:
    """A rank has moved; the last one lets everybody go on."""
    worker = state.workers[message.worker]
    wrong = _misfit(state, worker, message)
    if wrong:
        return [Refuse("out of turn", f"an update of {worker.name}: {wrong}")]
    step = state.steps[0]
    worker.version = message.version
    worker.busy_s += message.busy_s
    step.waiting_for.discard(message.worker)
    module = worker.group.module
    ranks = [rank.name for rank in state.in_group(worker.group.name)]
    if step.waiting_for.isdisjoint(ranks):
        _set(state, module, ModulePhase.UPDATED)
    actions: list[Action] = []
    if worker.index == 0:
        state.updates[module] += 1
        for name, value in message.metrics.items():
            total = step.metrics.setdefault((module, name), [0.0, 0.0])
            total[0] += value
            total[1] += 1.0
        if message.weights is not None:
            actions += _publish(state, step, module, message)
    return actions + _barrier(state, step, now)


def _misfit(state: State, worker: Worker, message: Updated) -> str:
    """Why it cannot be an answer to the present update; empty when it is."""
    step = state.steps[0] if state.steps else None
    if step is None or step.phase is not Phase.UPDATING or worker.group.kind != "gang":
        return "nobody is asked for one"
    if worker.name not in step.waiting_for:
        return "it was told before"
    if message.version != state.version + 1:
        return f"to version {message.version}, not {state.version + 1}"
    last = step.part + 1 == len(step.parts)
    publishes = last and worker.index == 0 and bool(state.topology.engines(worker.group.module))
    if (message.weights is not None) is not publishes:
        return "weights that were not asked for, or are missing"
    if message.weights is not None and message.weights[OWNER] != worker.token:
        return "weights in a block that is not its own"
    return ""


def _publish(state: State, step: Step, module: str, message: Updated) -> list[Action]:
    """Engines that are there load the weights; one that is replaced will when it is ready."""
    assert message.weights is not None
    published = Published(message.version, message.weights, message.digest)
    state.published[module] = published
    actions = retain(state, published.weights, 1)
    for group in state.topology.engines(module):
        for engine in state.in_group(group.name):
            if engine.phase in (WorkerPhase.READY, WorkerPhase.LOADING):
                step.waiting_for.add(engine.name)
                actions += load(state, engine, published)
    return actions


def load(state: State, engine: Worker, published: Published) -> list[Action]:
    """Tell the engine to load weights, which stay until it has."""
    state.loading.setdefault(engine.name, deque()).append(published)
    retain(state, published.weights, 1)
    version, weights, digest = published
    message = Load(version=version, weights=weights, digest=digest)
    return [Send(worker=engine.name, message=message)]


def loaded(state: State, message: Loaded, now: float) -> list[Action]:
    """An engine has new weights."""
    engine = state.workers[message.worker]
    waiting = state.loading.get(engine.name)
    if not waiting or waiting[0].version != message.version:
        return [Refuse("out of turn", f"{engine.name} has weights that it was not given")]
    published = waiting.popleft()
    engine.version = message.version
    engine.busy_s += message.busy_s
    actions = release(state, [published.weights])
    if waiting:
        return actions
    del state.loading[engine.name]
    if engine.phase is WorkerPhase.LOADING:
        engine.phase = advance(engine.name, engine.phase, WorkerPhase.READY)
        actions += engine_ready(state, engine)
    return actions + leave_barrier(state, engine, now)


def leave_barrier(state: State, worker: Worker, now: float) -> list[Action]:
    """The worker has done its part of the present barrier, or never will: it is lost."""
    step = state.steps[0] if state.steps else None
    if step is None or worker.name not in step.waiting_for:
        return []
    step.waiting_for.discard(worker.name)
    return _barrier(state, step, now)


def _barrier(state: State, step: Step, now: float) -> list[Action]:
    """Go on as far as those that are waited for allow."""
    if not step.waiting_for:
        return _all_updated(state, step, now)
    gangs = any(state.workers[name].group.kind == "gang" for name in step.waiting_for)
    if not gangs and step.phase is Phase.UPDATING:
        step.phase = advance(f"step {step.step}", step.phase, Phase.SYNCING)
    return []


def _all_updated(state: State, step: Step, now: float) -> list[Action]:
    """Every rank and engine is at the new version."""
    state.stale = True
    state.version += 1
    for module in state.modules:
        _set(state, module, ModulePhase.CURRENT)
    if step.part + 1 < len(step.parts):
        step.part += 1
        step.phase = advance(f"step {step.step}", step.phase, Phase.WORKING)
        return []
    return [*_finish_step(state, step, now), *checkpoint(state, step, now)]


def means(step: Step) -> dict[str, dict[str, float]]:
    """The step's metrics by scope and name, each sum divided by its count."""
    result: dict[str, dict[str, float]] = {}
    for (scope, name), (total, count) in sorted(step.metrics.items()):
        if count:
            result.setdefault(scope, {})[name] = total / count
    return result


def _finish_step(state: State, step: Step, now: float) -> list[Action]:
    step.phase = advance(f"step {step.step}", step.phase, Phase.FINISHED)
    state.steps.popleft()
    add_to(state.records, step)
    seconds = max(now - step.began, 1e-9)
    busy = {}
    for worker in state.workers.values():
        busy[worker.name] = min(1.0, (worker.busy_s - worker.busy_mark) / seconds)
        worker.busy_mark = worker.busy_s
    metrics = means(step)
    state.history.append(metrics)
    if state.steps:
        state.steps[0].began = now
    state.clock = now
    finished = StepFinished(
        step=step.step, seconds=seconds, metrics=metrics, tokens=step.tokens, busy=busy
    )
    return [Tell(finished)]


def _finish_evaluation(state: State, step: Step) -> list[Action]:
    state.stale = True
    step.phase = advance(f"step {step.step}", step.phase, Phase.FINISHED)
    state.steps.popleft()
    check_closed(step)
    name = state.topology.variants()[step.variant - 1].name
    figures = {
        metric if scope == name else f"{scope}.{metric}": value
        for scope, named in means(step).items()
        for metric, value in named.items()
    }
    state.evaluations[name] = figures
    return [Tell(EvaluationFinished(name=name, step=step.step, figures=figures))]


def _end_of_source(state: State, step: Step) -> list[Action]:
    """The source has no more whole steps: the run ends here, after its last evaluations."""
    state.stale = True
    state.total_steps = step.step
    kept = [other for other in state.steps if other.order < step.order]
    state.steps.clear()
    state.steps.extend(kept)
    state.next_step = step.step
    return []
