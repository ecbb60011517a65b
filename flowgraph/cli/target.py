"""From what was typed on the command line to a graph, a plan or a run directory."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flowgraph.cli.costs_file import load_costs
from flowgraph.cli.error_notes import error_notes
from flowgraph.cli.options import Request, read_pin_texts, read_settings
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import ConfigurationError, GraphError, PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan

Kind = Literal["graph", "plan", "run"]

PLAN_FILE = "plan.fgplan"
"""The plan in a run directory."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plan came from: what replays it and what messages name."""

    kind: Kind
    path: Path


def source_of(target: str) -> Source:
    """What `target` names. Raises ConfigurationError when there is no such thing."""
    path = Path(target)
    if path.is_dir():
        if not (path / PLAN_FILE).is_file():
            raise ConfigurationError(
                f"{target} is a folder, but no run directory: it has no {PLAN_FILE}",
                hint="GRAPH.py, a plan file, or a folder that `flowgraph run` made",
            )
        return Source("run", path)
    file = target.rpartition(":")[0] if ".py:" in target else target
    if file.endswith(".py"):
        return Source("graph", Path(file))
    if not path.exists():
        raise ConfigurationError(
            f"{target}: no such file", hint="GRAPH.py, GRAPH.py:build, or a plan file"
        )
    return Source("plan", path)


def load_declared(request: Request) -> Graph:
    """The graph as its file declares it, before any pass."""
    from flowgraph.dsl.load import load_graph

    return load_graph(request.target, read_settings(request.settings))


def compile_request(
    request: Request, graph: Graph | None = None, costs: Mapping[str, Any] | None = None
) -> Plan:
    """The plan of a graph file on the cluster asked for. graph: what it declares, if loaded.

    costs: what `flowgraph profile` measured, which replaces estimates; the request's file if None.
    """
    from flowgraph.passes import compile_graph

    costs = load_costs(request.costs) if costs is None else costs
    pins = read_pin_texts(request.pins)
    declared = load_declared(request) if graph is None else graph
    seen = [declared]
    with error_notes(lambda: seen[-1], request.cluster):
        return compile_graph(
            declared,
            cluster_for(declared, request.cluster),
            pins,
            costs=costs,
            watch=lambda _, state: seen.append(state.graph),
        )


def load_plan(request: Request) -> Plan:
    """Whatever the target is: the plan compiled from it, or the plan that it is.

    Raises ConfigurationError where a compiled plan is asked to be another one.
    """
    source = source_of(request.target)
    if source.kind == "graph":
        return compile_request(request)
    options = (
        ("--set", request.settings),
        ("--cluster", request.cluster),
        ("--pin", request.pins),
        ("--costs", request.costs),
    )
    given = [name for name, values in options if values]
    if given:
        raise ConfigurationError(
            f"{request.target} is compiled already: {', '.join(given)} cannot change it",
            hint="give these to a graph file, GRAPH.py",
        )
    return read_plan(source.path / PLAN_FILE if source.kind == "run" else source.path)


def read_plan(file: Path) -> Plan:
    """A plan file's plan, checked. Raises ConfigurationError for one that cannot be run."""
    from flowgraph.ir.binary import decode
    from flowgraph.ir.verify import verify_flow, verify_plan

    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    plan = decode(data, str(file))
    try:
        verify_flow(plan.graph)
        verify_plan(plan)
    except (GraphError, PlanError) as error:
        raise ConfigurationError(
            f"{file} is not a legal plan: {error.what}",
            at=error.at,
            hint="make the plan again: flowgraph compile GRAPH.py -o PLAN",
        ) from error
    return plan


def cluster_for(graph: Graph, file: str | None) -> Cluster:
    """The cluster of `--cluster`, else the graph's own (relative to its root), else this machine.

    Plans of one graph on one machine are equal: what is detected does not change between calls.
    """
    if file is None and not graph.cluster:
        from flowgraph.cli.local_machine import local_cluster

        return local_cluster()
    from flowgraph.cli.cluster_file import load_cluster

    return load_cluster(Path(graph.root, graph.cluster) if file is None else Path(file))
