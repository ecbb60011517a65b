"""Compiled plans with one thing changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan, Prediction
from flowgraph.passes import compile_graph
from tests.passes.graphs import gpus, laptop, marl, vlm

PlanCases = dict[str, dict[str, Callable[[], Plan]]]
"""By rule and title: a plan that breaks this rule."""


def made(graph: Graph, cluster: Cluster) -> Plan:
    """The compiled plan, without what the passes say of it, which no rule is about."""
    plan = compile_graph(graph, cluster)
    rooms = tuple(replace(room, alternatives=(), move_seconds=0.0) for room in plan.rooms)
    return replace(plan, prediction=Prediction(), decisions=(), neighbours=(), rooms=rooms)


MARL = made(marl(), laptop())
VLM = made(vlm(), laptop())
SHARED = made(marl(), gpus(1, 3))
"""Two gangs take turns on one device."""


def group(plan: Plan, name: str, **changes: Any) -> Plan:
    new = tuple(replace(g, **changes) if g.name == name else g for g in plan.groups)
    return replace(plan, groups=new)


def task(plan: Plan, name: str, **changes: Any) -> Plan:
    new = tuple(replace(t, **changes) if t.name == name else t for t in plan.tasks)
    return replace(plan, tasks=new)


def channel(plan: Plan, stream: str, **changes: Any) -> Plan:
    new = tuple(replace(c, **changes) if c.stream == stream else c for c in plan.channels)
    return replace(plan, channels=new)


def schedule(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, schedule=replace(plan.schedule, **changes))


def node(plan: Plan, **changes: Any) -> Plan:
    nodes = (replace(plan.cluster.nodes[0], **changes),)
    return replace(plan, cluster=replace(plan.cluster, nodes=nodes))


def room(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, rooms=(replace(plan.rooms[0], **changes), *plan.rooms[1:]))
