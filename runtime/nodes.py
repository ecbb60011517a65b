"""Which processes of a plan share a machine, and what lies between those that do not."""

from collections.abc import Mapping

from flowgraph.ir.plan import Plan


def nodes_of(plan: Plan) -> Mapping[str, str]:
    """The node of every worker, by name. A group without places is on the cluster's first node."""
    first = plan.cluster.nodes[0].name
    found: dict[str, str] = {}
    for group in plan.groups:
        nodes = [place.node for place in group.places] or [first]
        for index in range(group.replicas):
            found[f"{group.name}-{index}"] = nodes[index % len(nodes)]
    return found


def listening(plan: Plan) -> Mapping[str, str]:
    """By node, where it listens for readers of its blocks; none when all workers share a node."""
    used = set(nodes_of(plan).values())
    if len(used) < 2:
        return {}
    nodes = [node for node in plan.cluster.nodes if node.name in used]
    return {node.name: f"tcp://{node.address}:*" for node in nodes}
