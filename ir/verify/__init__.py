"""Legality of both dialects, as tables of rules: one rule, one check, one message."""

from flowgraph.ir.verify.cluster import cluster_faults, verify_cluster
from flowgraph.ir.verify.flow import flow_faults, verify_flow
from flowgraph.ir.verify.plan import plan_faults, verify_plan

__all__ = [
    "cluster_faults",
    "flow_faults",
    "plan_faults",
    "verify_cluster",
    "verify_flow",
    "verify_plan",
]
