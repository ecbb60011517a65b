"""What one more or one fewer device would change: the plan solved again on such a cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from flowgraph.ir.cluster import Cluster, Node
from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Neighbour, Plan, WorkerGroup
from flowgraph.passes.layouts import named
from flowgraph.passes.words import counted

Groups = tuple[WorkerGroup, ...]
Again = Callable[[Cluster], tuple[Groups, float]]
"""Groups, and seconds of a step, on another cluster. Raises PlanError where none is possible."""

SAME = 1e-3
"""Shares of a step below which two predictions are told as equal."""


def neighbours_of(plan: Plan, again: Again) -> tuple[Neighbour, ...]:
    """One more and one fewer of each kind of device that models run on.

    One more device comes as a node of its own, one more core to the first node; one fewer is taken
    from the last node. Where a device is left over nothing is solved: the same plan still fits. Nor
    can more devices make a step longer or fewer make it shorter, whatever a search without time for
    an ILP finds.
    """
    found = []
    own = plan.prediction.step_seconds
    for kind in _kinds(plan.cluster):
        for devices in (1, -1):
            cluster = _changed(plan.cluster, kind, devices)
            if cluster is None:
                found.append(Neighbour(kind=kind, devices=devices, refusal="it is the only one"))
                continue
            if devices < 0 and _left_over(plan, kind):
                found.append(Neighbour(kind=kind, devices=devices, step_seconds=own))
                continue
            try:
                groups, seconds = again(cluster)
            except PlanError as error:
                found.append(Neighbour(kind=kind, devices=devices, refusal=error.what))
                continue
            if devices > 0 and seconds > own * (1 - SAME):
                groups, seconds = plan.groups, own
            if devices < 0:
                seconds = max(own, seconds)
            changes = dict(_changes(plan, groups, cluster))
            found.append(
                Neighbour(kind=kind, devices=devices, step_seconds=seconds, changes=changes)
            )
    return tuple(found)


def _kinds(cluster: Cluster) -> list[str]:
    """Accelerators where there are any, else the cores."""
    have = list(dict.fromkeys(node.device for node in cluster.nodes))
    fast = [name for name in have if cluster.kind(name).kind != "cpu"]
    return fast or have


def _changed(cluster: Cluster, kind: str, devices: int) -> Cluster | None:
    """The cluster with so many devices more; None when none of that kind would be left."""
    nodes = list(cluster.nodes)
    own = [i for i, node in enumerate(nodes) if node.device == kind]
    shared = cluster.kind(kind).kind == "cpu"
    if devices > 0 and not shared:
        first = nodes[own[0]]
        # Hardly any cores come with it, or what changed might be due to them.
        nodes.append(replace(first, name=_unused(nodes, first), devices=devices, cores=1))
    elif devices > 0:
        nodes[own[0]] = _resized(nodes[own[0]], devices, shared=True)
    elif nodes[own[-1]].devices + devices > 0:
        nodes[own[-1]] = _resized(nodes[own[-1]], devices, shared=shared)
    elif len(own) > 1:
        del nodes[own[-1]]
    else:
        return None
    return replace(cluster, nodes=tuple(nodes))


def _resized(node: Node, devices: int, *, shared: bool) -> Node:
    """shared: its devices are its cores."""
    cores = max(1, node.cores + devices) if shared else node.cores
    return replace(node, devices=node.devices + devices, cores=cores)


def _unused(nodes: list[Node], like: Node) -> str:
    taken, name = {node.name for node in nodes}, f"{like.name}+1"
    while name in taken:
        name += "+1"
    return name


def _left_over(plan: Plan, kind: str) -> bool:
    """Whether the last node of the kind, which one is taken from, has a device that nobody uses."""
    node = [node for node in plan.cluster.nodes if node.device == kind][-1]
    used = {
        p.device for g in plan.groups for p in g.places if p.node == node.name and p.device >= 0
    }
    shared = plan.cluster.kind(kind).kind == "cpu"
    return not shared and len(used) < node.devices


def _changes(plan: Plan, after: Groups, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """By group whose processes, layout or kind of device differ, from what to what."""
    old: Mapping[str, WorkerGroup] = {group.name: group for group in plan.groups}
    kinds = [{node.name: node.device for node in own.nodes} for own in (plan.cluster, cluster)]
    for group in after:
        if group.name not in old:
            continue
        was, now = _told(old[group.name]), _told(group)
        before, later = (
            ", ".join(dict.fromkeys(kind[p.node] for p in g.places if p.device >= 0))
            for g, kind in zip((old[group.name], group), kinds, strict=True)
        )
        if before != later:
            was, now = f"{was} on {before}", f"{now} on {later}"
        if was != now:
            yield group.name, f"{was} -> {now}"


def _told(group: WorkerGroup) -> str:
    if group.kind == "stage":
        return counted(group.replicas, "process", "processes")
    if group.kind == "gang":
        turns = f" in turn with {group.shares}" if group.shares else ""
        laid = f" as {named(group.layout)}" if group.layout.ranks > 1 else ""
        return f"{counted(group.replicas, 'rank')}{laid}{turns}"
    text = counted(group.replicas // group.layout.ranks, "engine")
    return text if group.layout.ranks == 1 else f"{text} of {named(group.layout)}"
