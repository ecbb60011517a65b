"""Where each unit of a step is in each task, kept so that no question needs a scan.

Law: a unit goes WAITING → RUNNING → DONE in each task, and back to WAITING only when who had it is
lost; it is DONE once. It is ready in a task when it is DONE in all tasks that the task reads from.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.orchestrator.routes import Route
from flowgraph.runtime.orchestrator.state import State, Step, TaskProgress, UnitStatus
from flowgraph.runtime.orchestrator.transitions import advance

STARTED, GIVEN_BACK, FINISHED = (
    (before, advance("a unit", before, after))
    for before, after in (
        (UnitStatus.WAITING, UnitStatus.RUNNING),
        (UnitStatus.RUNNING, UnitStatus.WAITING),
        (UnitStatus.RUNNING, UnitStatus.DONE),
    )
)
"""Transitions, held against the table once."""


def begin(state: State, step: Step, finished: Iterable[str]) -> None:
    """All units WAITING in every task of the step, DONE in the `finished` ones."""
    count, parts = len(step.units), [len(units) for units in step.parts]
    step.part_of = [part for part, units in enumerate(step.parts) for _ in units]
    step.left_of = [0] * len(parts)
    routes = state.routes[step.variant].of
    for name, route in routes.items():
        inputs = len(route.task.inputs)
        step.tasks[name] = TaskProgress(
            status=bytearray(count),
            missing=bytearray([inputs]) * count,
            done=[0] * len(parts),
            begun=[0] * len(parts),
            ready=[] if inputs else list(range(count)),
            ready_units=[0] * len(parts) if inputs else list(parts),
            ready_tokens=[0] * len(parts),
            sizes=step.sizes[route.task.inputs[0]] if route.fills else None,
        )
        step.left += count
        if not route.host:
            step.left_of = [left + more for left, more in zip(step.left_of, parts, strict=True)]
    for name in finished:
        route, units = routes[name], range(count)
        start(step, route, [take(step, route) for _ in units])
        finish(step, route, units)


def take(step: Step, route: Route) -> int:
    """The first ready unit, which is to be started."""
    progress = step.tasks[route.task.name]
    unit = heappop(progress.ready)
    part = step.part_of[unit]
    progress.ready_units[part] -= 1
    if progress.sizes is not None:
        progress.ready_tokens[part] -= progress.sizes[unit]
    return unit


def start(step: Step, route: Route, units: Sequence[int]) -> None:
    """Units that were taken are handed out."""
    progress = step.tasks[route.task.name]
    _move(progress, units, *STARTED)
    for unit in units:
        progress.begun[step.part_of[unit]] += 1


def give_back(step: Step, route: Route, units: Sequence[int]) -> None:
    """Who had the units is lost: they are ready for another."""
    progress = step.tasks[route.task.name]
    _move(progress, units, *GIVEN_BACK)
    for unit in units:
        progress.begun[step.part_of[unit]] -= 1
        _arrive(progress, step.part_of[unit], unit)


def finish(step: Step, route: Route, units: Sequence[int]) -> None:
    """The units are done: whoever reads the task's outputs may have become ready."""
    progress = step.tasks[route.task.name]
    _move(progress, units, *FINISHED)
    progress.finished += len(units)
    step.left -= len(units)
    part_of, done = step.part_of, progress.done
    left_of = None if route.host else step.left_of
    for unit in units:
        part = part_of[unit]
        done[part] += 1
        if left_of is not None:
            left_of[part] -= 1
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


def _move(
    progress: TaskProgress, units: Iterable[int], before: UnitStatus, after: UnitStatus
) -> None:
    """Raises InternalError for a unit that is not where it should be."""
    status = progress.status
    for unit in units:
        if status[unit] != before:
            found = UnitStatus(status[unit])
            raise InternalError(f"unit {unit} is {found.name}, not {before.name}")
        status[unit] = after
