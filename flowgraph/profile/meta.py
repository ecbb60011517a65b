"""Models counted on torch's meta device: no memory is taken, nothing is computed."""

from collections import Counter
from typing import TYPE_CHECKING

from flowgraph.ir.graph import Graph
from flowgraph.passes.costs import MODULE

if TYPE_CHECKING:
    from torch import nn


def count_models(graph: Graph) -> dict[str, dict[str, float]]:
    """`<module>.<quantity>`, as costs, of the modules whose description does not say how many
    parameters they have; what it does say is left out. Raises what a factory raises, and
    GraphError when it gives no module."""
    import torch

    from flowgraph.runtime.trainer.build import build_module

    found = {}
    for module in graph.modules:
        if module.description.get("parameters"):
            continue
        with torch.device("meta"):
            counted = count(build_module(module, graph.root, graph.seed))
        for name, value in counted.items():
            if value and not module.description.get(name):
                found[f"{module.name}.{name}"] = {"value": value, "spread": 0.0, "count": 1}
    return found


def count(module: "nn.Module") -> dict[str, float]:
    """By quantity. parameters: shared ones once. layers: of the longest list of modules alike.

    width: what most matrices take in; vocab: rows of the largest embedding; 0 where there are none.
    """
    from torch import nn

    lists = (m for m in module.modules() if isinstance(m, nn.ModuleList | nn.Sequential))
    alike = (Counter(type(child) for child in one) for one in lists)
    layers = max((many.most_common(1)[0][1] for many in alike if many), default=0)
    widths = Counter(m.in_features for m in module.modules() if isinstance(m, nn.Linear))
    tables = [m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)]
    found = {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "layers": layers,
        "width": max(widths, key=lambda width: (widths[width], width), default=0),
        "vocab": max(tables, default=0),
    }
    return {name: float(found[name]) for name in MODULE}
