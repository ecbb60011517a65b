"""Where each unit of a step is in each task, kept so that no question needs a scan.

Law: a unit goes WAITING → RUNNING → DONE in each task, and back to WAITING only when who had it is
lost; it is DONE once. It is ready in a task when it is DONE in all tasks that the task reads from,
and no suspect there.
"""

from array import array
from collections.abc import Sequence
from heapq import heappop, heappush

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.orchestrator.channels import open_channels, part_done
from flowgraph.runtime.orchestrator.routes import Route
from flowgraph.runtime.orchestrator.state import State, Step, TaskProgress, UnitStatus
from flowgraph.runtime.orchestrator.transitions import advance

STARTED, GIVEN_BACK, FINISHED = (
    (int(before), int(advance("a unit", before, after)))
    for before, after in (
        (UnitStatus.WAITING, UnitStatus.RUNNING),
        (UnitStatus.RUNNING, UnitStatus.WAITING),
        (UnitStatus.RUNNING, UnitStatus.DONE),
    )
)
"""Transitions, held against the table once."""


def begin(state: State, step: Step) -> None:
    """All units WAITING in every task of the step."""
    count, parts = len(step.units), [len(units) for units in step.parts]
    step.part_of = array("I")
    for part, units in enumerate(parts):
        step.part_of.extend(array("I", [part]) * units)
    step.left_of = [0] * len(parts)
    for name, route in state.routes[step.variant].of.items():
        inputs = len(route.task.inputs)
        step.tasks[name] = progress = TaskProgress(
            status=bytearray(count),
            missing=bytearray([inputs]) * count,
            channels=open_channels(step, route),
            done=[0] * len(parts),
            begun=[0] * len(parts),
            ready=[],
            fresh=count if inputs else 0,
            ready_units=[0] * len(parts) if inputs else list(parts),
            ready_tokens=[0] * len(parts),
            sizes=step.sizes[route.task.inputs[0]] if route.fills else None,
        )
        if not route.host:
            step.left_of = [left + more for left, more in zip(step.left_of, parts, strict=True)]
        for part, units in enumerate(parts):
            if not units:
                part_done(progress, part)


def settle(step: Step, route: Route) -> None:
    """What the task has to do for the step was done before the step was formed."""
    units = range(len(step.units))
    for _ in units:
        lease(step, step.tasks[route.task.name])
    finish(step, route, units)


def first_ready(progress: TaskProgress) -> int:
    """The first ready unit; when none is, how many units there are."""
    return progress.ready[0] if progress.ready else progress.fresh


def lease(step: Step, progress: TaskProgress) -> int:
    """The first ready unit, which is handed out now."""
    if progress.ready:
        unit = heappop(progress.ready)
    else:
        unit = progress.fresh
        progress.fresh += 1
    _move(progress, unit, *STARTED)
    part = step.part_of[unit]
    progress.begun[part] += 1
    progress.ready_units[part] -= 1
    if progress.sizes is not None:
        progress.ready_tokens[part] -= progress.sizes[unit]
    return unit


def lease_apart(step: Step, route: Route, unit: int) -> None:
    """A unit that was held back is handed out now."""
    progress = step.tasks[route.task.name]
    _move(progress, unit, *STARTED)
    progress.begun[step.part_of[unit]] += 1


def give_back(step: Step, route: Route, units: Sequence[int]) -> None:
    """Who had the units is lost: they are ready for another."""
    hold_back(step, route, units)
    progress = step.tasks[route.task.name]
    for unit in units:
        _arrive(progress, step.part_of[unit], unit)


def hold_back(step: Step, route: Route, units: Sequence[int]) -> None:
    """Who had the units is lost, and they are not for just anybody: see `suspects.py`."""
    progress = step.tasks[route.task.name]
    for unit in units:
        _move(progress, unit, *GIVEN_BACK)
        progress.begun[step.part_of[unit]] -= 1


def finish(step: Step, route: Route, units: Sequence[int]) -> None:
    """The units are done: whoever reads the task's outputs may have become ready.

    What was made of them must have been counted: with a part's last unit its channels end.
    """
    progress = step.tasks[route.task.name]
    part_of, done = step.part_of, progress.done
    for unit in units:
        _move(progress, unit, *FINISHED)
        part = part_of[unit]
        done[part] += 1
        if not route.host:
            step.left_of[part] -= 1
        if done[part] == len(step.parts[part]):
            part_done(progress, part)
    for name, streams in route.feeds:
        reader = step.tasks[name]
        missing = reader.missing
        for unit in units:
            missing[unit] -= streams
            if not missing[unit]:
                _arrive(reader, part_of[unit], unit)


def _arrive(progress: TaskProgress, part: int, unit: int) -> None:
    heappush(progress.ready, unit)
    progress.ready_units[part] += 1
    if progress.sizes is not None:
        progress.ready_tokens[part] += progress.sizes[unit]


def _move(progress: TaskProgress, unit: int, before: int, after: int) -> None:
    """Raises InternalError for a unit that is not where it should be."""
    status = progress.status
    if status[unit] != before:
        found, due = UnitStatus(status[unit]), UnitStatus(before)
        raise InternalError(f"unit {unit} is {found.name}, not {due.name}")
    status[unit] = after
