"""What must hold of the orchestrator's state after every event, and of a run at its end."""

from collections import Counter

from flowgraph.runtime.orchestrator.events import Action, Event
from flowgraph.runtime.orchestrator.state import (
    Phase,
    RunPhase,
    State,
    Step,
    UnitStatus,
    WorkerPhase,
)


def check_state(state: State, event: Event, actions: list[Action]) -> None:
    """Raises AssertionError naming the law that the event broke."""
    if state.phase is not RunPhase.RUNNING:
        return
    for records in (state.records, *(found.records for found in state.steps)):
        for (stream, consumer), record in records.items():
            assert record.in_flight >= 0, f"{stream}/{consumer} consumed what was not admitted"
    assert all(count > 0 for count in state.references.values()), "a block without readers is kept"
    _check_workers(state)
    _check_versions(state)
    for found in state.steps:
        if found.formed:
            _check_units(found)


def _check_workers(state: State) -> None:
    held: Counter[str] = Counter()
    for item in state.items.values():
        if item.id in state.workers[item.worker].items:
            held[item.worker] += 1
    for worker in state.workers.values():
        assert worker.inflight >= 0, f"{worker.name} gave back more than it was given"
        assert held[worker.name] == len(worker.items), f"{worker.name} holds items nobody knows"
        if worker.group.kind == "gang":
            assert worker.inflight == len(worker.items) <= max(1, worker.group.in_flight)


def _check_versions(state: State) -> None:
    """Outside an update everybody who holds weights of a trained module has the same version."""
    if not state.steps or state.steps[0].phase in (Phase.UPDATING, Phase.SYNCING):
        return
    trained = set(state.topology.trained_modules())
    updates = state.plan.schedule.updates
    for worker in state.workers.values():
        if worker.group.module in trained and worker.group.kind == "gang":
            assert worker.version == state.version, f"{worker.name} is at another version"
        present = worker.phase is WorkerPhase.READY
        if worker.group.module in trained and worker.group.kind == "engine" and present:
            # Engines are given new weights by the last update of a step only.
            assert worker.version == state.version - state.version % updates, worker.name
    assert len(set(state.updates.values())) <= 1, "modules took different numbers of updates"


def _check_units(step: Step) -> None:
    for name, progress in step.tasks.items():
        assert len(set(progress.ready)) == len(progress.ready), name
        assert progress.ready[:1] == sorted(progress.ready)[:1], name
        for unit, (status, missing) in enumerate(
            zip(progress.status, progress.missing, strict=True)
        ):
            ready = status == UnitStatus.WAITING and missing == 0
            assert ready is (unit in progress.ready), f"{name}: unit {unit}"
        assert progress.finished == progress.status.count(UnitStatus.DONE), name
        for part, units in enumerate(step.parts):
            of_part = progress.status[units.start : units.stop]
            assert progress.done[part] == of_part.count(UnitStatus.DONE), name
            assert progress.begun[part] == len(units) - of_part.count(UnitStatus.WAITING), name
            ready_here = [unit for unit in progress.ready if unit in units]
            assert progress.ready_units[part] == len(ready_here), name
            if progress.sizes is not None:
                tokens = sum(progress.sizes[unit] for unit in ready_here)
                assert progress.ready_tokens[part] == tokens, name
    left = sum(len(progress.status) - progress.finished for progress in step.tasks.values())
    assert step.left == left, f"{step.left} of {left} are counted as left"
