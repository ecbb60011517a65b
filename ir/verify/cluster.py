"""Legality of a cluster, whether it came from a file or stands in a plan."""

from collections.abc import Iterator

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.verify.faults import nearest


def verify_cluster(cluster: Cluster) -> None:
    """Raises ConfigurationError for the first fault."""
    for fault in cluster_faults(cluster):
        raise fault


def cluster_faults(cluster: Cluster) -> Iterator[ConfigurationError]:
    """Names are unique, nodes have declared kinds of devices, counts and rates make sense."""
    if not cluster.nodes:
        yield _fault("cluster", cluster.name, "a node", "none")
    kinds = [kind.name for kind in cluster.kinds]
    for kind, names in (("kind", kinds), ("node", [node.name for node in cluster.nodes])):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield _fault(kind, name, "a name of its own", "it twice")
    for node in cluster.nodes:
        if node.device not in kinds:
            hint = nearest(node.device, kinds)
            yield _fault("node", node.name, "a declared kind of device", repr(node.device), hint)
        yield from _bounded(node.name, "node", {"devices": node.devices, "cores": node.cores}, 1)
        yield from _bounded(node.name, "node", {"memory_bytes": node.memory_bytes}, 0)
    for device in cluster.kinds:
        yield from _bounded(device.name, "kind", {"slots": device.slots}, 1)
        rates = {"memory_bytes": device.memory_bytes, "bandwidth": device.bandwidth}
        yield from _bounded(device.name, "kind", rates, 0)
        for dtype, flops in device.flops:
            if not flops > 0:
                yield _fault("kind", device.name, f"flops of {dtype} > 0", str(flops))


def _bounded(
    name: str, kind: str, values: dict[str, float], least: int
) -> Iterator[ConfigurationError]:
    for what, value in values.items():
        if not value >= least:
            yield _fault(kind, name, f"{what} >= {least}", str(value))


def _fault(
    kind: str, name: str, expects: str, got: str, hint: str | None = None
) -> ConfigurationError:
    return ConfigurationError(
        f"{kind} {name!r}: expects {expects}, got {got}", hint=hint, node=f'{kind} "{name}"'
    )
