"""Legality of the plan dialect: that the runtime can execute it as it stands.

A broken rule in a plan that the compiler just made is our bug; in a file it is the file's fault.
Both are told as PlanError, and the pipeline turns its own into an InternalError.
"""

from flowgraph.ir.plan import Plan
from flowgraph.ir.verify.cluster import cluster_faults
from flowgraph.ir.verify.dispatch import SCHEDULE_RULES, TASK_RULES
from flowgraph.ir.verify.groups import GROUP_RULES, ROOM_RULES
from flowgraph.ir.verify.plan_index import PlanFaults, PlanRule, plan_index

PLAN_RULES: tuple[PlanRule, ...] = (
    *SCHEDULE_RULES,
    *GROUP_RULES,
    *TASK_RULES,
    *ROOM_RULES,
)
"""In this order: a rule may rest on those before it, and all of them on a legal cluster."""


def plan_faults(plan: Plan) -> PlanFaults:
    """All faults of the cluster, or of the first rule that finds any."""
    faults = list(cluster_faults(plan.cluster))
    yield from faults
    if faults:
        return
    at = plan_index(plan)
    for rule in PLAN_RULES:
        broken = list(rule(at))
        yield from broken
        if broken:
            return


def verify_plan(plan: Plan) -> None:
    """Raises PlanError, or ConfigurationError for the cluster, for the first rule broken."""
    for fault in plan_faults(plan):
        raise fault
