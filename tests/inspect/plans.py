"""Plans that the tests explain: small ones of every shape that an explanation tells of."""

from functools import cache
from pathlib import Path

import flowgraph as fg
from flowgraph.cli.cluster_file import load_cluster
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def example(name: str, cluster: str) -> Plan:
    """A shipped example on a shipped cluster."""
    graph = fg.load_graph(str(EXAMPLES / f"{name}.py"))
    return compile_graph(graph, load_cluster(EXAMPLES / "clusters" / f"{cluster}.yaml"))


PLANS = {
    "agents on cores": lambda: compile_graph(marl(), laptop()),
    "agents on devices": lambda: compile_graph(marl(), gpus()),
    "agents in turn on few devices": lambda: compile_graph(marl(), gpus(1, 3)),
    "images on cores": lambda: compile_graph(vlm(), laptop()),
    "images and a filter on two nodes": lambda: compile_graph(filtered(), gpus(2, 4)),
    "pinned": lambda: compile_graph(
        marl(), laptop(), {"solver.engines": 2, "schedule.mode": "barrier"}
    ),
}
