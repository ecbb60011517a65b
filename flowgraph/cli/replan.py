"""Another plan for a run that ended early: the same graph, for other devices or other counts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowgraph.cli.options import read_pin_texts
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan


def replanned(old: Plan, cluster: str | None, pins: tuple[str, ...], *, exact: bool) -> Plan:
    """The plan's graph compiled again, for the cluster file or the old plan's cluster.

    pins: as typed; those of the old plan stay unless another value is given. exact: what the bits
    of the result depend on stays as it was. Raises ConfigurationError where the new plan would not
    train the same graph, or not to the same bits.
    """
    from flowgraph.cli.cluster_file import load_cluster
    from flowgraph.ir.verify.runnable import verify_runnable
    from flowgraph.passes import compile_graph

    wanted = read_pin_texts(pins)  # the graph has those of the old plan
    if exact:
        chunk = old.schedule.chunk
        if wanted.setdefault("schedule.chunk", chunk) != chunk:
            raise ConfigurationError(
                f"the run is exact and has chunks of {chunk}: with others its bits would change",
                hint=f"leave out --pin schedule.chunk={wanted['schedule.chunk']}",
            )
    new = compile_graph(old.graph, load_cluster(Path(cluster)) if cluster else old.cluster, wanted)
    verify_runnable(new)
    if _trained(new) != _trained(old):
        raise ConfigurationError(
            "the graph of the run compiles to another one here: it was made by another flowgraph",
            hint="resume without --cluster and --pin, or with that version",
        )
    if exact and _lengths(new) != _lengths(old):
        raise ConfigurationError(
            "the run is exact and its engines hold calls of another length in the new plan: "
            f"{_lengths(old)}, then {_lengths(new)}"
        )
    return new


def _trained(plan: Plan) -> tuple[Any, ...]:
    """What decides the result: the graph, less what it fixes of the plan, and its tasks."""
    return replace(plan.graph, pins={}), [(task.name, task.stages) for task in plan.tasks]


def _lengths(plan: Plan) -> Mapping[str, int]:
    return {group.name: group.max_length for group in plan.groups if group.kind == "engine"}
