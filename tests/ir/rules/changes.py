"""Graphs with one thing changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.types import Field, RecordType

Cases = dict[str, dict[str, Callable[[], Graph]]]
"""By rule and title: a graph that breaks this rule."""

INT = Field(name="x", dtype="int64")


def stage(graph: Graph, name: str, **changes: Any) -> Graph:
    """The graph with fields of one stage replaced; `attributes` are added to its own."""
    old = graph.stage(name)
    if "attributes" in changes:
        changes["attributes"] = {**old.attributes, **changes["attributes"]}
    new = replace(old, **changes)
    return replace(graph, stages=tuple(new if s is old else s for s in graph.stages))


def without(graph: Graph, name: str, attribute: str) -> Graph:
    old = graph.stage(name)
    kept = {key: value for key, value in old.attributes.items() if key != attribute}
    new = replace(old, attributes=kept)
    return replace(graph, stages=tuple(new if s is old else s for s in graph.stages))


def stream(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.stream(name)
    new = replace(old, **changes)
    return replace(graph, streams=tuple(new if s is old else s for s in graph.streams))


def typed(graph: Graph, name: str, *fields: Field, key: tuple[str, ...] | None = None) -> Graph:
    """The graph with fields of a stream's type replaced or added."""
    old = graph.stream(name).type
    new = {field.name: field for field in (*old.fields, *fields)}
    return stream(graph, name, type=RecordType(fields=tuple(new.values()), key=key or old.key))


def lacking(graph: Graph, name: str, field: str) -> Graph:
    old = graph.stream(name).type
    kept = tuple(f for f in old.fields if f.name != field)
    return stream(graph, name, type=replace(old, fields=kept))


def agent(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.agent(name)
    new = replace(old, **changes)
    return replace(graph, agents=tuple(new if a is old else a for a in graph.agents))


def module(graph: Graph, name: str, **changes: Any) -> Graph:
    old = graph.module(name)
    new = replace(old, **changes)
    return replace(graph, modules=tuple(new if m is old else m for m in graph.modules))


def added(graph: Graph, new: Stage, *streams: Stream) -> Graph:
    return replace(graph, stages=(*graph.stages, new), streams=(*graph.streams, *streams))
