"""The example about digits with wider models, so that a micro-batch takes 50 ms and more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import flowgraph as fg
from flowgraph.cli.local_machine import local_cluster
from flowgraph.ir.graph import Graph, Module
from flowgraph.ir.plan import Plan
from flowgraph.models.descriptions import describe
from flowgraph.passes import compile_graph

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "vlm_digits.py"

BATCH = 256

WIDER: dict[str, dict[str, Any]] = {
    "vit": {"layers": 3, "width": 256, "out_width": 64},
    "lm": {"layers": 3, "width": 256},
}
"""Parameters other than the example's, by module; the features between them stay as they are."""


def wide_graph() -> Graph:
    """The example's graph; only its modules are others."""
    graph = fg.load_graph(str(EXAMPLE), {"batch": str(BATCH), "eval_samples": "16"})
    return replace(graph, modules=tuple(_wider(module) for module in graph.modules))


def wide_plan() -> Plan:
    """The plan for this machine."""
    return compile_graph(wide_graph(), local_cluster())


def _wider(module: Module) -> Module:
    params = {**module.factory.params, **WIDER[module.name]}
    factory = replace(module.factory, params=params)
    return replace(module, factory=factory, description=describe(str(factory), params))
