"""A plan by name, and how a broken rule of a plan is told."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from flowgraph.ir.errors import ConfigurationError, PlanError
from flowgraph.ir.index import Index, index
from flowgraph.ir.plan import Plan, Task, WorkerGroup

PlanFaults = Iterator[PlanError | ConfigurationError]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanIndex:
    """makers: stream to the task that hands it over its border."""

    plan: Plan
    flow: Index
    groups: Mapping[str, WorkerGroup]
    makers: Mapping[str, Task]


PlanRule = Callable[[PlanIndex], PlanFaults]


def plan_index(plan: Plan) -> PlanIndex:
    """Never raises: a plan that is not legal is indexed as far as its names go."""
    return PlanIndex(
        plan=plan,
        flow=index(plan.graph),
        groups={group.name: group for group in plan.groups},
        makers={stream: task for task in plan.tasks for stream in task.outputs},
    )


def plan_fault(
    kind: str, name: str, expects: str, got: str, hint: str | None = None, *, term: str = ""
) -> PlanError:
    """`group 'x': expects ..., got ...`."""
    return PlanError(
        f"{kind} {name!r}: expects {expects}, got {got}",
        hint=hint,
        node=f'{kind} "{name}"',
        term=term,
    )
