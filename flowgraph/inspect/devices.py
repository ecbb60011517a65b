"""How busy devices and hosts are, and what of their memory is taken; alike ones together."""

from collections import Counter
from dataclasses import dataclass

from flowgraph.inspect.parts import node_order, places_text
from flowgraph.ir.cluster import Node
from flowgraph.ir.plan import Place, Plan, WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Devices, or nodes' cores, that hold the same processes.

    kind: of device, `cores` for hosts. count: how many there are. processes: on one of them, by
    group. busy: share of a step, 1.0 for all of it. memory_bytes of memory_limit (0: not stated).
    """

    kind: str
    where: str
    count: int
    processes: dict[str, int]
    busy: float
    memory_bytes: int
    memory_limit: int


def used_devices(plan: Plan) -> tuple[Used, ...]:
    """Accelerators first, then the nodes' cores; nothing that is idle."""
    nodes = {node.name: node for node in plan.cluster.nodes}
    shared = {n.name for n in plan.cluster.nodes if plan.cluster.kind(n.device).kind == "cpu"}
    seats: dict[tuple[str, int], Counter[str]] = {}
    for group in plan.groups:
        for place in group.places:
            device = -1 if place.node in shared else place.device
            seats.setdefault((place.node, device), Counter())[group.name] += 1
    alike: dict[tuple[str, int, int, tuple[tuple[str, int], ...]], list[Place]] = {}
    for (name, device), own in seats.items():
        node = nodes[name]
        kind = "cores" if device < 0 else node.device
        size = node.cores if device < 0 else 1
        key = (kind, size, _memory_limit(plan, node, device), tuple(sorted(own.items())))
        alike.setdefault(key, []).append(Place(node=name, device=device))
    groups, order = {group.name: group for group in plan.groups}, node_order(plan)
    found = [
        Used(
            kind=kind if kind != "cores" else f"{size} core" + ("s" if size != 1 else ""),
            where=places_text(places, order),
            count=len(places),
            processes=dict(own),
            busy=_busy(plan, dict(own), size),
            memory_bytes=_memory(plan, dict(own), groups),
            memory_limit=limit,
        )
        for (kind, size, limit, own), places in alike.items()
    ]
    return tuple(sorted(found, key=lambda used: ("core" in used.kind, -used.busy)))


def devices_used(plan: Plan) -> int:
    """Distinct devices that engines and gangs have."""
    return len({(p.node, p.device) for g in plan.groups for p in g.places if p.device >= 0})


def _memory_limit(plan: Plan, node: Node, device: int) -> int:
    kind = plan.cluster.kind(node.device)
    return node.memory_bytes if device < 0 else kind.memory_bytes


def _busy(plan: Plan, own: dict[str, int], size: int) -> float:
    seconds = plan.prediction.seconds
    step = plan.prediction.step_seconds
    work = sum(seconds.get(name, 0.0) * count for name, count in own.items())
    return work / (step * size) if step else 0.0


def _memory(plan: Plan, own: dict[str, int], groups: dict[str, WorkerGroup]) -> int:
    """Who leaves between turns does not count beside the others who do."""
    held = {name: plan.prediction.memory_bytes.get(name, 0) * n for name, n in own.items()}
    away = [held[name] for name in own if groups[name].residency != "resident"]
    return sum(held.values()) - sum(away) + max(away, default=0)
