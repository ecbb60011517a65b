"""What must hold of the orchestrator's state after every event, and of a run at its end."""

from collections import Counter

from flowgraph.runtime.orchestrator.blocks import block_id
from flowgraph.runtime.orchestrator.events import Action, Event
from flowgraph.runtime.orchestrator.records import ChannelPhase
from flowgraph.runtime.orchestrator.state import (
    Phase,
    RunPhase,
    State,
    Step,
    UnitStatus,
    WorkerPhase,
)

DONE = int(UnitStatus.DONE)


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
            _check_units(state, found, _held_back(state, found))
            _check_channels(state, found)
            _check_blocks(state, found)


def _check_workers(state: State) -> None:
    held: Counter[str] = Counter()
    for item in state.items.values():
        if item.id in state.workers[item.worker].items:
            held[item.worker] += 1
    for worker in state.workers.values():
        kept = all(name in state.references for name in worker.held)
        assert kept, f"{worker.name} looks at blocks that were freed"
        looked = worker.name in state.looked
        assert worker.held or not looked, f"{worker.name} looked, and holds nothing"
        assert worker.inflight >= 0, f"{worker.name} gave back more than it was given"
        assert held[worker.name] == len(worker.items), f"{worker.name} holds items nobody knows"
        if worker.trial is not None:
            assert len(worker.items) == 1, f"{worker.name} has more than its suspect"
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


def _held_back(state: State, step: Step) -> set[tuple[str, int]]:
    """Tasks and units of the step that wait alone, or of which one sample is tried alone."""
    tried = [worker.trial for worker in state.workers.values()]
    suspects = [*state.suspects.waiting, *(one for one in tried if one and one.probing)]
    held = [(s.route.task.name, s.unit) for s in suspects if s.order == step.order]
    assert len(set(held)) == len(held), "a unit is under suspicion twice"
    return set(held)


def _check_units(state: State, step: Step, held_back: set[tuple[str, int]]) -> None:
    left = [0] * len(step.parts)
    for name, progress in step.tasks.items():
        all_ready = [*progress.ready, *range(progress.fresh, len(progress.status))]
        assert len(set(all_ready)) == len(all_ready), name
        assert all_ready[:1] == sorted(all_ready)[:1], name
        # WAITING is 0, and nothing is missing.
        columns = zip(progress.status, progress.missing, strict=True)
        ready = {unit for unit, both in enumerate(columns) if not any(both)}
        apart = {unit for task, unit in held_back if task == name}
        assert apart <= ready, f"{name}: units {apart - ready} are tried without their input"
        assert ready - apart == set(all_ready), f"{name}: {ready - apart} are ready"
        all_done = progress.status.count(UnitStatus.DONE) == len(progress.status)
        assert progress.all_done is all_done, name
        for part, units in enumerate(step.parts):
            of_part = progress.status[units.start : units.stop]
            assert progress.done[part] == of_part.count(UnitStatus.DONE), name
            assert progress.begun[part] == len(units) - of_part.count(UnitStatus.WAITING), name
            ready_here = [unit for unit in all_ready if unit in units]
            assert progress.ready_units[part] == len(ready_here), name
            if progress.sizes is not None:
                tokens = sum(progress.sizes[unit] for unit in ready_here)
                assert progress.ready_tokens[part] == tokens, name
            of_hosts = state.routes[step.variant].of[name].host
            left[part] += 0 if of_hosts else len(units) - progress.done[part]
    assert step.left_of == left, f"{step.left_of} of {left} are counted as left"


def _check_channels(state: State, step: Step) -> None:
    """A channel is what its producer and consumer have made of it, and nothing is lost in it."""
    seen = 0
    for name, route in state.routes[step.variant].of.items():
        for part, units in enumerate(step.parts):
            channels = step.tasks[name].channels[part]
            done = step.tasks[name].done[part] == len(units)
            for channel in channels.hands:
                assert (channel.phase is ChannelPhase.OPEN) is not done, f"{channel.name}: {part}"
            for channel in (*channels.inner, *channels.reads):
                assert (channel.phase is ChannelPhase.CLOSED) is done, f"{channel.name}: {part}"
                assert channel.in_flight >= 0, f"{channel.name} consumed what was not admitted"
                assert not (done and channel.in_flight), f"{channel.name} is closed too early"
            seen += len(channels.inner) + len(channels.reads)
            if route.fills:
                open_ = any(c.phase is ChannelPhase.OPEN for c in channels.reads)
                missing = step.tasks[name].missing[units.start : units.stop]
                assert open_ is any(missing), f"{name}, part {part}: more can come or not"
    assert seen == sum(map(len, step.channels.values())), "a channel that nobody reads"


def _check_blocks(state: State, step: Step) -> None:
    """A unit's block is known as long as a task has it to read, and is referred to so long."""
    for route in state.routes[step.variant].of.values():
        for stream in route.outputs:
            blocks = step.blocks[stream]
            known = [unit for unit, handles in enumerate(blocks) if handles]
            for unit in known:
                kept = all(block_id(handle) in state.references for handle in blocks[unit])
                assert kept, f"{stream}: unit {unit} was freed and will be read"
            pairs = zip(step.tasks[route.task.name].status, step.unread[stream], strict=True)
            assert known == [u for u, (s, left) in enumerate(pairs) if s == DONE and left], stream
