"""Where the nodes of a graph that flows from left to right go: columns, and the order in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[str, str]

SWEEPS = 6
"""Rounds of ordering each column by its neighbours; more change nothing in graphs of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """columns: names from left to right, top to bottom, waypoints of long edges included.

    routes: for each edge the names that it passes, both ends included, one a column.
    """

    columns: tuple[tuple[str, ...], ...]
    routes: Mapping[Edge, tuple[str, ...]]


def arrange(nodes: Sequence[str], edges: Sequence[Edge]) -> Layers:
    """Columns by longest path, ordered by barycentres (Sugiyama, Tagawa and Toda 1981).

    nodes: in topological order. An edge that spans several columns gets a waypoint in each of
    those between, so that it is drawn around the nodes there.
    """
    import networkx  # 0.3 s

    flow = networkx.DiGraph()
    flow.add_nodes_from(nodes)
    flow.add_edges_from(edges)
    generations = enumerate(networkx.topological_generations(flow))
    depth = {node: column for column, generation in generations for node in generation}
    routes = {edge: _route(edge, depth) for edge in edges}
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        columns[depth[node]].append(node)
    for (a, _), route in routes.items():
        for step, waypoint in enumerate(route[1:-1], start=1):
            columns[depth[a] + step].append(waypoint)
    _order(columns, list(routes.values()))
    return Layers(columns=tuple(map(tuple, columns)), routes=routes)


def _route(edge: Edge, depth: Mapping[str, int]) -> tuple[str, ...]:
    a, b = edge
    between = range(depth[a] + 1, depth[b])
    return (a, *(f"{a} → {b} @ {column}" for column in between), b)


def _order(columns: list[list[str]], routes: Sequence[Sequence[str]]) -> None:
    links = [link for route in routes for link in pairwise(route)]
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for a, b in links:
        before.setdefault(b, []).append(a)
        after.setdefault(a, []).append(b)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for column in columns if forward else reversed(columns):
            place = {name: i / len(c) for c in columns for i, name in enumerate(c)}
            own = {name: _mean(name, neighbours, place) for name in column}
            column.sort(key=own.__getitem__)


def _mean(name: str, neighbours: Mapping[str, list[str]], place: Mapping[str, float]) -> float:
    """Mean place of the neighbours; a node without any stays where it is."""
    near = [place[other] for other in neighbours.get(name, ())]
    return sum(near) / len(near) if near else place[name]
