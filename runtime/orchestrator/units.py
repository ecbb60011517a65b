"""Where each unit of a step is in each task, kept so that no question needs a scan.

Law: a unit goes WAITING → RUNNING → DONE, once, in each task; it is ready in a task when it is DONE
in all tasks that the task reads from.
"""

from bisect import insort
from collections.abc import Iterable

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Task
from flowgraph.runtime.orchestrator.state import State, Step, TaskProgress, UnitStatus


def begin(state: State, step: Step, finished: Iterable[str]) -> None:
    """All units WAITING in every task of the step, DONE in the `finished` ones."""
    tasks = state.topology.tasks_for(step.variant)
    count = len(step.units)
    step.part_of = [part for part, units in enumerate(step.parts) for _ in units]
    for task in tasks:
        inputs = len(task.inputs)
        step.tasks[task.name] = TaskProgress(
            status=[UnitStatus.WAITING] * count,
            missing=[inputs] * count,
            done=[0] * len(step.parts),
            ready=[] if inputs else list(range(count)),
        )
    for name in finished:
        task = state.plan.task(name)
        start(step, task, range(count))
        finish(state, step, task, range(count))


def start(step: Step, task: Task, units: Iterable[int]) -> None:
    """The units were handed out."""
    progress = step.tasks[task.name]
    for unit in units:
        _advance(progress, unit, UnitStatus.WAITING, UnitStatus.RUNNING)
        progress.ready.remove(unit)


def finish(state: State, step: Step, task: Task, units: Iterable[int]) -> None:
    """The units are done: whoever reads the task's outputs may have become ready."""
    progress = step.tasks[task.name]
    readers = [
        (step.tasks[other.name], sum(stream in task.outputs for stream in other.inputs))
        for other in state.topology.tasks_for(step.variant)
        if set(other.inputs) & set(task.outputs)
    ]
    for unit in units:
        _advance(progress, unit, UnitStatus.RUNNING, UnitStatus.DONE)
        progress.done[step.part_of[unit]] += 1
        for reader, streams in readers:
            reader.missing[unit] -= streams
            if reader.missing[unit] == 0:
                insort(reader.ready, unit)


def _advance(progress: TaskProgress, unit: int, before: UnitStatus, after: UnitStatus) -> None:
    if progress.status[unit] is not before:
        raise InternalError(f"unit {unit} is {progress.status[unit].name}, not {before.name}")
    progress.status[unit] = after
