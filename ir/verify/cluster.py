"""Legality of a cluster, whether it came from a file or stands in a plan."""

from collections.abc import Callable, Iterator, Mapping

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.verify.faults import nearest, repeated

ClusterFaults = Iterator[ConfigurationError]
ClusterRule = Callable[[Cluster], ClusterFaults]


MOST_SEATS = 1 << 20
"""Whatever has more is a slip of the pen, and would take hours and all memory to plan for."""


def verify_cluster(cluster: Cluster) -> None:
    """Raises ConfigurationError for the first fault."""
    for fault in cluster_faults(cluster):
        raise fault


def cluster_faults(cluster: Cluster) -> ClusterFaults:
    """All faults, in the order of the rules."""
    for rule in CLUSTER_RULES:
        yield from rule(cluster)


def there_is_a_node(cluster: Cluster) -> ClusterFaults:
    """A cluster has a node."""
    if not cluster.nodes:
        yield _fault("cluster", cluster.name, "a node", "none", "one node at least")


def cluster_names_are_unique(cluster: Cluster) -> ClusterFaults:
    """Nodes and kinds of devices have names of their own."""
    parts = (
        ("kind", [kind.name for kind in cluster.kinds]),
        ("node", [node.name for node in cluster.nodes]),
    )
    for kind, names in parts:
        for name in repeated(names):
            yield _fault(kind, name, "a name of its own", "it twice", f"one {name!r}")


def kinds_are_declared(cluster: Cluster) -> ClusterFaults:
    """Nodes have devices of declared kinds."""
    kinds = [kind.name for kind in cluster.kinds]
    for node in cluster.nodes:
        if node.device not in kinds:
            hint, got = nearest(node.device, kinds), repr(node.device)
            yield _fault("node", node.name, "a declared kind of device", got, hint, "device")


def nodes_are_counted(cluster: Cluster) -> ClusterFaults:
    """A node has a device and a core or more, and memory that is no less than 0 bytes."""
    for node in cluster.nodes:
        values = {"devices": node.devices, "cores": node.cores}
        yield from _at_least(1, "node", node.name, values)
        yield from _at_least(0, "node", node.name, {"memory_bytes": node.memory_bytes})


def seats_are_counted(cluster: Cluster) -> ClusterFaults:
    """Workers have no more than 1,048,576 seats: devices, times the workers that each one takes."""
    slots = {kind.name: kind.slots for kind in cluster.kinds}
    seats = [node.devices * slots.get(node.device, 1) for node in cluster.nodes]
    if sum(seats) > MOST_SEATS:
        largest = max(zip(seats, cluster.nodes, strict=True), key=lambda it: it[0])[1]
        expects, got = f"{MOST_SEATS:,} seats at most in its cluster", f"{sum(seats):,}"
        yield _fault("node", largest.name, expects, got, "fewer devices or slots", "devices")


def devices_are_described(cluster: Cluster) -> ClusterFaults:
    """A device has a slot or more; memory and bandwidth are no less than 0."""
    for kind in cluster.kinds:
        rates = {"memory_bytes": kind.memory_bytes, "bandwidth": kind.bandwidth}
        yield from _at_least(1, "kind", kind.name, {"slots": kind.slots})
        yield from _at_least(0, "kind", kind.name, rates)


def speeds_are_positive(cluster: Cluster) -> ClusterFaults:
    """A device computes something a second in each dtype that it is described for."""
    for kind in cluster.kinds:
        for dtype, flops in kind.flops:
            if not flops > 0:
                expects, hint = f"flops of {dtype} > 0", f"leave {dtype} out"
                yield _fault("kind", kind.name, expects, str(flops), hint, dtype)


CLUSTER_RULES: tuple[ClusterRule, ...] = (
    there_is_a_node,
    cluster_names_are_unique,
    kinds_are_declared,
    nodes_are_counted,
    devices_are_described,
    seats_are_counted,
    speeds_are_positive,
)


def _at_least(least: int, kind: str, name: str, values: Mapping[str, float]) -> ClusterFaults:
    for what, value in values.items():
        if not value >= least:
            yield _fault(kind, name, f"{what} >= {least}", str(value), f"{what}={least}", what)


def _fault(
    kind: str, name: str, expects: str, got: str, hint: str | None, term: str = ""
) -> ConfigurationError:
    return ConfigurationError(
        f"{kind} {name!r}: expects {expects}, got {got}",
        hint=hint,
        node=f'{kind} "{name}"',
        term=term,
    )
