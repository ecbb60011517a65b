"""Parameters counted on torch's meta device: no memory is taken, nothing is computed."""

from flowgraph.ir.graph import Graph


def count_parameters(graph: Graph) -> dict[str, dict[str, float]]:
    """`<module>.parameters` of the modules whose description does not say, as costs."""
    import torch

    from flowgraph.runtime.trainer.build import build_module

    found = {}
    for module in graph.modules:
        if module.description.get("parameters"):
            continue
        with torch.device("meta"):
            made = build_module(module, graph.root, graph.seed)
        count = sum(parameter.numel() for parameter in made.parameters())
        found[f"{module.name}.parameters"] = {"value": count, "spread": 0.0, "count": 1}
    return found
