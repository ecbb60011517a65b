"""Legality of the flow dialect: tables of rules, and the one function that runs them."""

from collections.abc import Iterator, Mapping

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Graph
from flowgraph.ir.index import Index, index
from flowgraph.ir.ops import OPS
from flowgraph.ir.verify.declared import DECLARED_RULES
from flowgraph.ir.verify.faults import GraphRule, StageRule
from flowgraph.ir.verify.joins import JOIN_RULES
from flowgraph.ir.verify.names import NAME_RULES
from flowgraph.ir.verify.records import RECORD_RULES
from flowgraph.ir.verify.rows import ROW_RULES
from flowgraph.ir.verify.schema import SCHEMA_RULES
from flowgraph.ir.verify.training import STEP_RULES, TRAINING_RULES
from flowgraph.ir.verify.types import TYPE_RULES

GRAPH_RULES: tuple[GraphRule, ...] = (*NAME_RULES, *DECLARED_RULES)
"""Rules of the graph's shape and of what it declares, in this order."""

TABLES = (RECORD_RULES, ROW_RULES, JOIN_RULES, TRAINING_RULES)
"""A stage obeys those of the first table before those of the second."""

RULES: Mapping[str, tuple[StageRule, ...]] = {
    op: tuple(rule for table in TABLES for rule in table.get(op, ())) for op in OPS
}
"""By operation, the rules beside those that `OPS` implies for all of them."""


def verify_flow(graph: Graph) -> None:
    """Raises GraphError for the first rule that is broken, in the order of the tables."""
    for fault in flow_faults(graph):
        raise fault


def flow_faults(graph: Graph) -> Iterator[GraphError]:
    """All faults of the first kind of rule that finds any.

    Kinds in order: names and schema, the graph's edges, record types, each operation's own, the
    step's. Rules of a kind may rest on the kinds before it, so none of them runs on a broken one.
    """
    at = index(graph)
    for kind in (_schema, _edges, _types, _operations, _steps):
        faults = list(kind(at))
        yield from faults
        if faults:
            return


def _schema(at: Index) -> Iterator[GraphError]:
    for stage in at.graph.stages:
        for rule in SCHEMA_RULES:
            faults = list(rule(at, stage))
            yield from faults
            if faults:
                break


def _edges(at: Index) -> Iterator[GraphError]:
    for rule in GRAPH_RULES:
        faults = list(rule(at))
        yield from faults
        if faults:
            return


def _types(at: Index) -> Iterator[GraphError]:
    for stream in at.graph.streams:
        for rule in TYPE_RULES:
            yield from rule(stream)


def _operations(at: Index) -> Iterator[GraphError]:
    for stage in at.graph.stages:
        for rule in RULES[stage.op]:
            yield from rule(at, stage)


def _steps(at: Index) -> Iterator[GraphError]:
    for rule in STEP_RULES:
        yield from rule(at)
