"""A plan as the simulator drives it: one worker for all ranks that work on an item together.

The core hands items to workers and knows of no rank within one. Where a layout splits a model (tp,
pp, cp), all ranks of a replica, or of an engine's instance, have every item of theirs together; so
they are one worker here, on all of their devices, as fast as they are together.
"""

from dataclasses import replace

from flowgraph.ir.plan import Plan, WorkerGroup
from flowgraph.runtime.policy.step_time import EngineTimes, StepTimes, TaskTimes
from flowgraph.runtime.simulate.faults import Fault, Faults


def ranks_together(group: WorkerGroup) -> int:
    """Ranks that a model of the group is split over; no more than it has."""
    layout = group.layout
    return min(layout.tp * layout.pp * layout.cp, group.replicas)


def by_replica(plan: Plan) -> Plan:
    """The plan with a process a replica. Places stay one a rank, those of a replica in a row."""
    groups = tuple(
        replace(group, replicas=group.replicas // ranks_together(group)) for group in plan.groups
    )
    return replace(plan, groups=groups)


def times_together(plan: Plan, times: StepTimes) -> StepTimes:
    """Seconds of a replica's ranks together, from those of one that would work alone.

    plan: as it was compiled. Reading, loading and updating weights is of one rank's share of them
    already. A checkpoint is written by the ranks of one replica, each its own share.
    """
    shares = {g.module: g.layout.tp * g.layout.pp for g in plan.groups if g.kind == "gang"}
    ways = {group.name: ranks_together(group) for group in plan.groups}
    of_task = {task.name: ways[task.group] for task in plan.tasks}
    return replace(
        times,
        engines={name: _engine(own, ways.get(name, 1)) for name, own in times.engines.items()},
        tasks={name: _task(own, of_task.get(name, 1)) for name, own in times.tasks.items()},
        saves={module: own / shares.get(module, 1) for module, own in times.saves.items()},
    )


def faults_together(plan: Plan, faults: Faults) -> Faults:
    """What befalls a rank befalls all that work with it."""
    replicas = {
        f"{group.name}-{rank}": f"{group.name}-{rank // ranks_together(group)}"
        for group in plan.groups
        for rank in range(group.replicas)
    }
    moved: list[Fault] = [
        replace(fault, worker=replicas.get(fault.worker, fault.worker)) for fault in faults.faults
    ]
    return replace(faults, faults=tuple(moved))


def _engine(times: EngineTimes, ways: int) -> EngineTimes:
    return replace(
        times,
        prefill_token_s=times.prefill_token_s / ways,
        row_s=times.row_s / ways,
        row_read_s=times.row_read_s / ways,
    )


def _task(times: TaskTimes, ways: int) -> TaskTimes:
    return replace(
        times,
        item_s=times.item_s / ways,
        weight_s=times.weight_s / ways,
        backward_item_s=times.backward_item_s / ways,
        backward_weight_s=times.backward_weight_s / ways,
    )
