"""Checkpoints of a run: when, what the orchestrator keeps, and how a run goes on from one.

Only step boundaries are saved. What had run ahead of the boundary is not in it and is done again;
so a run that goes on has trained every sample once, and in exact mode ends with the same bits.
"""

from typing import Any

import msgpack

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.messages import Save, Saved
from flowgraph.runtime.orchestrator.events import Action, Commit, Refuse, Send
from flowgraph.runtime.orchestrator.records import Record
from flowgraph.runtime.orchestrator.state import State, Step, Worker

VERSION = 1


def checkpoint(state: State, step: Step, now: float) -> list[Action]:
    """Ask every trained module for its state, when it is time. Called right after step `step`.

    Messages to a worker keep their order, so what is saved is the boundary's, while the next step
    begins.
    """
    if not _due(state, step, now):
        return []
    state.checkpoint_at = now
    after = step.step + 1
    savers = _savers(state)
    state.snapshots[after] = snapshot(state, step)
    state.saving[after] = {worker.name for worker in savers}
    save = Save(step=after, folder=folder(state.options.run_dir, after) + ".partial")
    return [Send(worker=worker.name, message=save) for worker in savers]


def folder(run_dir: str, step: int) -> str:
    """Where the checkpoint after `step` steps lies once it is complete."""
    return f"{run_dir}/checkpoints/step-{step:08d}"


def _due(state: State, step: Step, now: float) -> bool:
    every = state.options.checkpoint_every
    if every:
        return (step.step + 1) % every == 0
    return now - state.checkpoint_at >= state.options.checkpoint_s


def _savers(state: State) -> list[Worker]:
    modules = state.topology.trained_modules()
    return [state.in_group(state.topology.gang(module).name)[0] for module in modules]


def saved(state: State, message: Saved) -> list[Action]:
    """A module's state is on disk; the last one makes the checkpoint whole."""
    waiting = state.saving.get(message.step, set())
    if message.worker not in waiting:
        return [Refuse("out of turn", f"{message.worker} saved step {message.step} unasked")]
    waiting.discard(message.worker)
    if waiting:
        return []
    del state.saving[message.step]
    return [Commit(step=message.step, data=state.snapshots.pop(message.step))]


def snapshot(state: State, step: Step) -> bytes:
    """The orchestrator at the boundary after `step`: msgpack of plain data."""
    last = step.samples[-1] + 1 if step.samples else 0
    data = {
        "version": VERSION,
        "step": step.step + 1,
        "weights_version": state.version,
        "updates": state.updates,
        "records": [
            (*key, record.admitted, record.consumed, record.dropped)
            for key, record in sorted(state.records.items())
        ],
        "history": state.history,
        "evaluations": state.evaluations,
        "initial_digests": state.initial_digests,
        "next_position": last,
        "steps": state.total_steps,
        "exact": state.exact,
    }
    packed: bytes = msgpack.packb(data)
    return packed


def restore(state: State, data: bytes) -> None:
    """Make a new state go on after the snapshot's step. Raises ConfigurationError if foreign."""
    found: dict[str, Any] = msgpack.unpackb(data)
    if found.get("version") != VERSION:
        raise ConfigurationError(f"a checkpoint of version {found.get('version')}, not {VERSION}")
    state.next_step = int(found["step"])
    state.resumed_at = state.next_step
    state.version = int(found["weights_version"])
    state.updates = {str(name): int(count) for name, count in found["updates"].items()}
    for stream, consumer, admitted, consumed, dropped in found["records"]:
        record = Record(admitted=admitted, consumed=consumed, dropped=dropped)
        state.records[(stream, consumer)] = record
    state.history = list(found["history"])
    state.evaluations = dict(found["evaluations"])
    state.initial_digests = dict(found["initial_digests"])
    position = int(found["next_position"])
    state.gate_from = state.gate_recorded = state.gate_cursor = position
    if state.topology.has_filters():
        # Filters see the same blocks of positions as in a run that was never interrupted.
        unit = state.topology.unit_samples(state.exact)
        state.gate_cursor = state.gate_next = position - position % unit
    for worker in state.workers.values():
        worker.version = state.version
