"""Which states may follow which: one table for all that goes from state to state.

Workers, units (leases), channels, steps, module versions, the run. Law: every change of such a
state goes through `advance`; one that the table does not have is a bug of ours, and says so instead
of going on.
"""

import enum
from collections.abc import Mapping
from typing import TypeVar

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.orchestrator.records import ChannelPhase
from flowgraph.runtime.orchestrator.state import (
    ModulePhase,
    Phase,
    RunPhase,
    UnitStatus,
    WorkerPhase,
)

S = TypeVar("S", bound=enum.Enum)

ALLOWED: Mapping[enum.Enum, frozenset[enum.Enum]] = {
    WorkerPhase.STARTING: frozenset(
        {WorkerPhase.LOADING, WorkerPhase.READY, WorkerPhase.STOPPING, WorkerPhase.LOST}
    ),
    WorkerPhase.LOADING: frozenset({WorkerPhase.READY, WorkerPhase.STOPPING, WorkerPhase.LOST}),
    WorkerPhase.READY: frozenset({WorkerPhase.STOPPING, WorkerPhase.LOST}),
    WorkerPhase.STOPPING: frozenset({WorkerPhase.STOPPED, WorkerPhase.LOST}),
    WorkerPhase.LOST: frozenset({WorkerPhase.STARTING, WorkerPhase.STOPPED}),
    WorkerPhase.STOPPED: frozenset(),
    # A unit in a task is a lease: RUNNING while a worker has it; it ends by DONE, or by the
    # worker's death, which gives it back.
    UnitStatus.WAITING: frozenset({UnitStatus.RUNNING}),
    UnitStatus.RUNNING: frozenset({UnitStatus.DONE, UnitStatus.WAITING}),
    UnitStatus.DONE: frozenset(),
    # None is opened again: what a lost worker gives back it had not made.
    ChannelPhase.OPEN: frozenset({ChannelPhase.ENDED}),
    ChannelPhase.ENDED: frozenset({ChannelPhase.CLOSED}),
    ChannelPhase.CLOSED: frozenset(),
    Phase.AHEAD: frozenset({Phase.WORKING}),
    Phase.WORKING: frozenset({Phase.UPDATING, Phase.FINISHED}),  # evaluations have no update
    Phase.UPDATING: frozenset({Phase.SYNCING, Phase.WORKING, Phase.FINISHED}),
    Phase.SYNCING: frozenset({Phase.WORKING, Phase.FINISHED}),
    Phase.FINISHED: frozenset(),
    # All trained modules of a step flip together: none is CURRENT again before all are UPDATED.
    ModulePhase.CURRENT: frozenset({ModulePhase.UPDATING}),
    ModulePhase.UPDATING: frozenset({ModulePhase.UPDATED}),
    ModulePhase.UPDATED: frozenset({ModulePhase.CURRENT}),
    RunPhase.STARTING: frozenset({RunPhase.RUNNING, RunPhase.ENDED}),
    RunPhase.RUNNING: frozenset({RunPhase.STOPPING, RunPhase.ENDED}),
    RunPhase.STOPPING: frozenset({RunPhase.ENDED}),
    RunPhase.ENDED: frozenset(),
}


def advance(what: str, before: S, after: S) -> S:
    """The state `after`. Raises InternalError naming both when it may not follow `before`."""
    if after not in ALLOWED[before]:
        raise InternalError(f"{what} cannot go from {before.name} to {after.name}")
    return after
