"""When weights move: after all gradients of a part, in all modules together.

Law: all trained modules are at one version outside `UPDATING`; engines are at the step's version
before any versioned work of the step is handed out; a module without samples moves too.
"""

from flowgraph.runtime.messages import Load, Loaded, Update, Updated
from flowgraph.runtime.orchestrator.blocks import release, retain
from flowgraph.runtime.orchestrator.checkpoints import checkpoint
from flowgraph.runtime.orchestrator.events import Action, Send, Tell
from flowgraph.runtime.orchestrator.state import Phase, State, Step
from flowgraph.runtime.progress import EvaluationFinished, StepFinished


def advance(state: State, now: float) -> list[Action]:
    """Move the present step on as far as it can go."""
    if not state.steps or not state.steps[0].formed:
        return []
    step = state.steps[0]
    if step.variant == 0 and not step.samples:
        return _end_of_source(state, step)
    if step.phase is not Phase.WORKING or not _part_done(state, step):
        return []
    if step.variant:
        return _finish_evaluation(state, step)
    return _begin_update(state, step, now)


def _part_done(state: State, step: Step) -> bool:
    if step.backward:
        return False
    last = step.part + 1 == len(step.parts)
    for task in state.topology.tasks_for(step.variant):
        progress = step.tasks[task.name]
        if last and not progress.all_done:
            return False
        if task.kind != "host" and progress.done[step.part] < len(step.parts[step.part]):
            return False
    return True


def _begin_update(state: State, step: Step, now: float) -> list[Action]:
    step.phase = Phase.UPDATING
    last = step.part + 1 == len(step.parts)
    scope = step.parts[step.part]
    actions: list[Action] = []
    for module in state.topology.trained_modules():
        weights = step.weights.get(state.topology.loss_task(module).name, [0.0] * len(step.units))
        owners = step.owners.get(module, {})
        message = Update(
            step=step.step,
            part=step.part,
            version=state.version + 1,
            divisor=float(sum(weights[unit] for unit in scope)),
            owners=tuple((unit, owners[unit]) for unit in scope if unit in owners),
            publish=last and bool(state.topology.engines(module)),
        )
        for worker in state.in_group(state.topology.gang(module).name):
            step.waiting_for.add(worker.name)
            actions.append(Send(worker=worker.name, message=message))
    if not step.waiting_for:  # nothing is trained
        actions += _all_updated(state, step, now)
    return actions


def updated(state: State, message: Updated, now: float) -> list[Action]:
    """A rank has moved; the last one lets everybody go on."""
    step = state.steps[0]
    worker = state.workers[message.worker]
    worker.version = message.version
    worker.busy_s += message.busy_s
    step.waiting_for.discard(message.worker)
    actions: list[Action] = []
    if worker.index == 0:
        module = worker.group.module
        state.updates[module] += 1
        for name, value in message.metrics.items():
            total = step.metrics.setdefault((module, name), [0.0, 0.0])
            total[0] += value
            total[1] += 1.0
        if message.weights is not None:
            actions += _publish(state, step, module, message)
    if not step.waiting_for:
        actions += _all_updated(state, step, now)
    return actions


def _publish(state: State, step: Step, module: str, message: Updated) -> list[Action]:
    handle = message.weights
    assert handle is not None
    engines = [w for group in state.topology.engines(module) for w in state.in_group(group.name)]
    actions = retain(state, handle, len(engines))
    for engine in engines:
        step.waiting_for.add(engine.name)
        load = Load(version=message.version, weights=handle, digest=message.digest)
        actions.append(Send(worker=engine.name, message=load))
    state.published[module] = handle
    return actions


def loaded(state: State, message: Loaded, now: float) -> list[Action]:
    """An engine has the new weights."""
    step = state.steps[0]
    worker = state.workers[message.worker]
    worker.version = message.version
    worker.busy_s += message.busy_s
    step.waiting_for.discard(worker.name)
    actions = release(state, [state.published[worker.group.module]])
    if not step.waiting_for:
        actions += _all_updated(state, step, now)
    return actions


def _all_updated(state: State, step: Step, now: float) -> list[Action]:
    """Every rank and engine is at the new version."""
    state.version += 1
    if step.part + 1 < len(step.parts):
        step.part += 1
        step.phase = Phase.WORKING
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
    step.phase = Phase.FINISHED
    state.steps.popleft()
    state.finish_records(step)
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
    step.phase = Phase.FINISHED
    state.steps.popleft()
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
    state.total_steps = step.step
    kept = [other for other in state.steps if other.order < step.order]
    state.steps.clear()
    state.steps.extend(kept)
    state.next_step = step.step
    return []
