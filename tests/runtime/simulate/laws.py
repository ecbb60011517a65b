"""What must hold of the orchestrator's state after every event, and of a run at its end."""

from collections import Counter

from flowgraph.runtime.orchestrator.events import Action, Event
from flowgraph.runtime.orchestrator.state import Phase, RunPhase, State, Step, UnitStatus


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
    if not state.steps or state.steps[0].phase is Phase.UPDATING:
        return
    trained = set(state.topology.trained_modules())
    updates = state.plan.schedule.updates
    for worker in state.workers.values():
        if worker.group.module in trained and worker.group.kind == "gang":
            assert worker.version == state.version, f"{worker.name} is at another version"
        if worker.group.module in trained and worker.group.kind == "engine":
            # Engines are given new weights by the last update of a step only.
            assert worker.version == state.version - state.version % updates, worker.name
    assert len(set(state.updates.values())) <= 1, "modules took different numbers of updates"


def _check_units(step: Step) -> None:
    for name, progress in step.tasks.items():
        assert progress.ready == sorted(progress.ready), name
        assert all(progress.status[unit] is UnitStatus.WAITING for unit in progress.ready), name
        done = sum(status is UnitStatus.DONE for status in progress.status)
        assert sum(progress.done) == done, f"{name} counts {sum(progress.done)} of {done} units"
        assert all(missing >= 0 for missing in progress.missing), name
