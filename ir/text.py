"""The text form of graphs, plans and clusters: `parse(print_text(x)) == x`.

    graph "marl" steps=300 {
      stage "games" op="episodes" inputs=("tasks") attributes={trajectories: 16} at @"marl.py":12
      stream "tasks" producer="tasks" type=<sample: int64, words: int64[words*]> ...
    }

An entity is a keyword, its name, fields as `field=value`, and in braces the entities inside. Values
are plain data: null, true, false, numbers, "text", (tuples), {maps: 1}; record types stand in
`<...>`, places as `@"file":line`. Fields at their default are left out. `#` starts a comment.
"""

from typing import TypeVar

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.data import PlainError
from flowgraph.ir.graph import Graph
from flowgraph.ir.lexer import ParseError, Source
from flowgraph.ir.parser import Parser
from flowgraph.ir.plain import from_plain, to_plain
from flowgraph.ir.plan import Plan
from flowgraph.ir.printer import print_entity

__all__ = ["ParseError", "parse", "parse_graph", "parse_plan", "print_text"]

CLASSES: dict[str, type[Graph] | type[Plan] | type[Cluster]] = {
    "graph": Graph,
    "plan": Plan,
    "cluster": Cluster,
}
T = TypeVar("T", Graph, Plan, Cluster)


def print_text(value: Graph | Plan | Cluster) -> str:
    """Deterministic: depends on the value only, ends with a newline."""
    keyword = next(word for word, cls in CLASSES.items() if isinstance(value, cls))
    return print_entity(keyword, to_plain(value)) + "\n"


def parse(text: str, file: str = "<text>") -> Graph | Plan | Cluster:
    """The inverse of `print_text`. Raises ParseError with the place."""
    source = Source(text, file)
    document = Parser(source).document(tuple(CLASSES))
    try:
        return from_plain(CLASSES[document.keyword], document.plain)
    except PlainError as error:
        raise source.fault(document.place(error.path), error.message) from None


def parse_graph(text: str, file: str = "<text>") -> Graph:
    """`parse` of a text that must be a graph."""
    return _expect(Graph, text, file)


def parse_plan(text: str, file: str = "<text>") -> Plan:
    """`parse` of a text that must be a plan."""
    return _expect(Plan, text, file)


def _expect(cls: type[T], text: str, file: str) -> T:
    found = parse(text, file)
    if isinstance(found, cls):
        return found
    kind, got = cls.__name__.lower(), type(found).__name__.lower()
    raise Source(text, file).fault(0, f"expects a {kind}, got a {got}")
