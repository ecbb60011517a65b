"""Legality of both dialects, as tables of rules."""

from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan


def verify_flow(graph: Graph) -> None:
    """Raises GraphError for the first rule that is broken."""


def verify_plan(plan: Plan) -> None:
    """Raises PlanError for the first rule that is broken."""
