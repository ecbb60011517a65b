"""Which sample kills the process that has it: found by handing it out alone.

A stage worker holds many samples at once, so that one lost process says little of any of them. What
was in its hands is under suspicion, at once when it crashed, and from the second time on when it
was killed, which others can have done. A suspect is handed to an idle worker that gets nothing else
until it is done. A unit of several samples is tried sample by sample first: what a trial of one
gives is thrown away, so that the unit itself is computed whole, as ever.

Laws: a suspect is in no heap of ready units; it waits here, or one worker has it and nothing else.
A sample is convicted when it was alone in all of `needed` processes that were lost one after the
other; one that gets through once is acquitted.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowgraph.runtime.orchestrator.events import Abort, Death, WorkerDied
from flowgraph.runtime.orchestrator.routes import Route

if TYPE_CHECKING:
    from flowgraph.runtime.orchestrator.state import Item, State, Worker

LEAST_DEATHS = 2
"""That convict, however few retries there are: one death alone may be anybody's doing."""

KILLED_DEATHS = 2
"""Processes that must be killed with a unit among others before it is a suspect."""


@dataclass(slots=True, kw_only=True)
class Suspect:
    """A unit of a step (or a block of positions before membership) that is tried alone.

    order: of its step. samples: all of the unit's. untried: those that are to be tried one by one,
    the first next; without any left, the unit is tried as a whole. deaths: processes in a row that
    were lost with what is tried now, and nothing else.
    """

    order: int
    route: Route
    unit: int
    samples: tuple[int, ...]
    untried: list[int]
    deaths: int = 0

    @property
    def probing(self) -> bool:
        """Whether one sample of several is tried."""
        return bool(self.untried)

    @property
    def alone(self) -> int | None:
        """The one sample that is tried now; None for several."""
        if self.untried:
            return self.untried[0]
        return self.samples[0] if len(self.samples) == 1 else None

    @property
    def place(self) -> tuple[int, int, str]:
        """Earlier steps first: others wait for those."""
        return self.order, self.unit, self.route.task.name


@dataclass(slots=True)
class Suspects:
    """waiting: by place, those that nobody has now. lost: by (order, task, unit), how many
    processes were lost that had the unit among others.
    """

    waiting: list[Suspect] = field(default_factory=list)
    lost: dict[tuple[int, str, int], int] = field(default_factory=dict)

    def add(self, suspect: Suspect) -> None:
        insort(self.waiting, suspect, key=lambda known: known.place)


def accuse(state: State, item: Item, samples: tuple[int, ...], death: Death) -> bool:
    """A lost process had the item. Whether its unit is a suspect now, to be handed out alone."""
    if death is Death.ORPHANED:
        return False
    (unit,) = item.units
    key = (item.order, item.task, unit)
    times = state.suspects.lost[key] = state.suspects.lost.get(key, 0) + 1
    if death is Death.KILLED and times < KILLED_DEATHS:
        return False
    state.suspects.add(
        Suspect(
            order=item.order,
            route=item.route,
            unit=unit,
            samples=samples,
            untried=list(samples) if len(samples) > 1 else [],
        )
    )
    return True


def acquit(state: State, worker: Worker) -> None:
    """What the worker tried alone got through."""
    suspect, worker.trial = worker.trial, None
    state.stale = True  # it may take others' work again, or the next suspect
    if suspect is not None and suspect.probing:
        suspect.untried.pop(0)
        suspect.deaths = 0
        state.suspects.add(suspect)


def condemned(state: State, worker: Worker, event: WorkerDied) -> Abort | None:
    """The end of the attempt, when the worker's loss convicts the sample that it had alone.

    None when it does not, or when nothing can be put aside: then it is tried as long as restarts
    are left.
    """
    suspect = worker.trial
    if suspect is None or event.death is Death.ORPHANED:
        return None
    suspect.deaths += 1
    if not excused(state, worker, event) or suspect.deaths < needed(state):
        return None
    stage = ", ".join(suspect.route.task.stages)
    cause = f"its process {event.how}, each of {suspect.deaths} times that it was handed out alone"
    return Abort(
        what=f"stage '{stage}', sample {suspect.alone}: {cause} (in worker {worker.name})",
        at=event.at,
        hint=f"see {event.log}",
        traceback=event.trace,
        stage=stage,
        cause=cause,
        sample=suspect.alone,
        training=True,
    )


def excused(state: State, worker: Worker, event: WorkerDied) -> bool:
    """Whether the loss is held against the sample that it had alone, and not against `restarts`.

    So it is where the sample can be put aside; `needed` bounds how often.
    """
    suspect = worker.trial
    if suspect is None or suspect.alone is None or event.death is Death.ORPHANED:
        return False
    found = next((step for step in state.steps if step.order == suspect.order), None)
    evaluating = found is not None and found.variant > 0
    return not evaluating and len(state.quarantine.samples) < state.options.quarantine


def needed(state: State) -> int:
    """Processes that must be lost with a sample alone before it is put aside."""
    return max(LEAST_DEATHS, 1 + state.options.retries)
