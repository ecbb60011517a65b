"""Costs of a graph: a few real steps on this machine, and each engine alone."""

from pathlib import Path
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Stage
from flowgraph.ir.plan import Plan
from flowgraph.profile.engines import time_engine
from flowgraph.profile.meta import count_models
from flowgraph.profile.samples import measured
from flowgraph.profile.watching import Watched
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.worker.engine import make_engine
from flowgraph.runtime.worker.entry import prepare_torch

WARM_UP = 1
"""Steps that are run and not counted."""


def profile(plan: Plan, folder: Path, *, steps: int = 3) -> dict[str, Any]:
    """Plain data as `compile_graph(costs=...)` takes it, measured by running `steps` steps.

    plan: compiled for the machine this runs on; times hold for the kind of device its models use.
    folder: for the run directory, which must not exist. One thread, as a worker has. Raises what
    the user's functions raise, as StageFailed, and ConfigurationError for a plan whose models are
    on accelerators, which workers do not use yet.
    """
    kind = _kind(plan)
    if plan.cluster.kind(kind).kind != "cpu":
        raise ConfigurationError(
            f"cluster {plan.cluster.name!r} has its models on {kind!r}, and what is run here is "
            "run on cores: their times would be taken for another device's",
            hint="profile without --cluster: calls, lengths and shares hold anywhere",
        )
    options = RunOptions(run_dir=str(folder), steps=WARM_UP + steps)
    directory = RunDirectory.create(options, plan)
    prepare_torch(False)
    try:
        watched = Watched(plan, options, directory)
        for step in range(WARM_UP + steps):
            watched.counting = step >= WARM_UP
            if not watched.one_step(step):
                break
    finally:
        directory.close()
    return {"device": kind, "values": _values(plan, watched)}


def _kind(plan: Plan) -> str:
    """The kind of device that models are placed on."""
    nodes = {node.name: node.device for node in plan.cluster.nodes}
    placed = [nodes[g.places[0].node] for g in plan.groups if g.kind != "stage" and g.places]
    return placed[0] if placed else plan.cluster.kinds[0].name


def _values(plan: Plan, watched: Watched) -> dict[str, dict[str, float]]:
    graph = plan.graph
    values = measured([("host.sample_s", watched.host_sample)])
    for agent in graph.agents:
        values |= measured(
            [
                (f"{agent.name}.calls", watched.calls[agent.name]),
                (f"{agent.name}.prompt", watched.prompts[agent.name]),
                (f"{agent.name}.response", watched.responses[agent.name]),
            ]
        )
        if watched.responses[agent.name].seen:
            engine = make_engine(plan, f"{agent.name}.engine", exact=False)
            vocabulary = int(graph.module(agent.module).description.get("vocab") or 2)
            found = time_engine(engine, plan, agent, vocabulary).measures()
            values |= {f"{agent.name}.engine.{name}": value for name, value in found.items()}
    for module, line in watched.gangs.items():
        values |= {f"{module}.gang.{name}": value for name, value in line.measures().items()}
    for name, samples in watched.items.items():
        values |= measured([(f"{name}.expect", samples)])
    values |= _counted(plan, watched)
    return values | count_models(graph)


def _counted(plan: Plan, watched: Watched) -> dict[str, dict[str, float]]:
    """Sizes of sources, and shares that filters of samples keep."""
    found: dict[str, dict[str, float]] = {}
    sources = plan.graph.by_op("source")
    size = watched.source_size(0)
    if len(sources) == 1 and size > 0:
        found[f"{sources[0].name}.size"] = {"value": size, "spread": 0.0, "count": 1}
    filters = [s for s in plan.graph.by_op("filter") if decides_membership(plan, s)]
    # Several filters are seen together only: their own shares stay what the graph expects.
    if len(filters) == 1 and (kept := watched.kept.measure()):
        found[f"{filters[0].name}.expect"] = kept
    return found


def decides_membership(plan: Plan, stage: Stage) -> bool:
    """Whether the filter is one of samples, which decides who belongs to a step."""
    return plan.graph.stream(stage.inputs[0]).type.key == ("sample",)
