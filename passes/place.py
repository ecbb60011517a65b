"""place: a node and a device for every process."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Place, WorkerGroup
from flowgraph.passes.demand import accelerated
from flowgraph.passes.seating import Bins, Seat, spread
from flowgraph.passes.state import Choices, State
from flowgraph.passes.traffic import traffic
from flowgraph.passes.words import counted, size_text

PROCESS_BYTES = 64 << 20
"""Memory of a node that a process has for itself at the very least, interpreter and torch loaded.
Only what cannot work is refused by it."""


@dataclass(frozen=True, slots=True)
class PlaceGroups:
    """Requires groups. Ensures `places` of each, as many as its processes; deterministic.

    On accelerators: the ranks of a tp group share a node; larger pieces go first, then groups that
    send each other most, each to the nodes of those it talks to. Rank r of a gang has its tp index
    in the lowest digit, then cp, pp, dp. On cores: the least filled in the cluster's order.
    Stage workers live on the hosts' cores (device -1). Groups that share devices in turn have the
    same places. Refuses what does not fit. Changes nothing else.
    """

    name: ClassVar[str] = "place"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        seats = _seats(state)
        _check_slots(state, seats)
        _check_memory(state, seats)
        places = _on_devices(state, seats) if state.layouts else spread(_movable(state), seats)
        hosts = [node.name for node in state.cluster.nodes]
        groups = []
        for group in state.groups:
            own = places.get(group.shares or group.name)
            if group.kind == "stage":
                own = tuple(Place(node=hosts[i % len(hosts)]) for i in range(group.replicas))
            groups.append(replace(group, places=(own or ())[: group.replicas]))
        placed = replace(state, groups=tuple(groups))
        _check_hosts(placed)
        _explain(placed, choices)
        return choices.onto(state, groups=placed.groups)


def _seats(state: State) -> tuple[Seat, ...]:
    """Devices that engines and gangs may use: accelerators when there are any, else cores."""
    wanted = accelerated(state)
    seats = []
    for node in state.cluster.nodes:
        kind = state.cluster.kind(node.device)
        if (kind.kind != "cpu") != wanted:
            continue
        memory = kind.memory_bytes or (0 if wanted else node.memory_bytes)
        seats += [
            Seat(node=node.name, device=i, kind=kind.name, slots=kind.slots, memory=memory)
            for i in range(node.devices)
        ]
    return tuple(seats)


def _movable(state: State) -> list[WorkerGroup]:
    """Groups that take devices of their own, gangs first: their ranks want to be close."""
    return sorted(
        (group for group in state.groups if group.kind != "stage" and not group.shares),
        key=lambda group: group.kind != "gang",
    )


def _on_devices(state: State, seats: tuple[Seat, ...]) -> Mapping[str, tuple[Place, ...]]:
    """Largest pieces first: since sizes divide one another, any node with room is as good as the
    others for what comes later, so that traffic alone may choose among them."""
    sent = traffic(state)
    bins = Bins(seats)
    left = _movable(state)
    where: dict[str, Counter[str]] = {}

    def talk(group: WorkerGroup, other: str) -> int:
        return sent.get((min(group.name, other), max(group.name, other)), 0)

    places: dict[str, tuple[Place, ...]] = {}
    while left:
        size = max(_piece(state, group) for group in left)
        group = max(
            (group for group in left if _piece(state, group) == size),
            key=lambda group: sum(talk(group, other) for other in places),
        )
        left.remove(group)
        near: Counter[str] = Counter()
        for other, nodes in where.items():
            for node, count in nodes.items():
                near[node] += talk(group, other) * count // max(1, nodes.total())
        own: list[Place] = []
        for _ in range(group.replicas // size):
            own += bins.take(size, state.layouts[group.name].kind, near, own)
        places[group.name] = tuple(own)
        where[group.name] = Counter(place.node for place in own)
    return places


def _piece(state: State, group: WorkerGroup) -> int:
    """Devices that must share a node: a tp group, or all that trainers take turns on."""
    shared = any(group.name in own for own in state.sharing.members.values())
    return group.replicas if shared else group.layout.tp


def _check_slots(state: State, seats: tuple[Seat, ...]) -> None:
    groups = _movable(state)
    over = sum(group.replicas for group in groups) - sum(seat.slots for seat in seats)
    if over <= 0:
        return
    asked = " + ".join(f"{group.name} {group.replicas}" for group in groups)
    largest = max(groups, key=lambda group: group.replicas)
    # On a core several workers may sit; a device takes one.
    thing = "device" if accelerated(state) else "worker slot"
    have = sum(seat.slots for seat in seats)
    raise PlanError(
        f"the plan needs {counted(have + over, thing)} ({asked}), cluster {state.cluster.name!r} "
        f"has {have}: {_summary(seats)}",
        hint=f"at most {largest.replicas - over} of {largest.name}, or {over} more"
        if largest.replicas > over
        else f"a cluster with {over} more",
    )


def _summary(seats: tuple[Seat, ...]) -> str:
    """Devices by node: `n0 8 x 1, n1 8 x 1`."""
    nodes: dict[str, list[Seat]] = {}
    for seat in seats:
        nodes.setdefault(seat.node, []).append(seat)
    shown = [f"{name} {len(own)} x {own[0].slots}" for name, own in nodes.items()]
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more nodes" if len(shown) > 6 else "")


def _check_memory(state: State, seats: tuple[Seat, ...]) -> None:
    """Of shared cores; layouts on accelerators were chosen by memory."""
    largest = max((seat.memory for seat in seats), default=0)
    for group in () if state.layouts else _movable(state):
        cost = state.costs[group.name]
        if largest and cost.memory_bytes > largest:
            terms = " + ".join(f"{name} {size_text(size)}" for name, size in cost.terms.items())
            worst = max(cost.terms, key=lambda name: cost.terms[name])
            raise PlanError(
                f"{group.name} needs {size_text(cost.memory_bytes)} a process ({terms}), the "
                f"largest node of cluster {state.cluster.name!r} has {size_text(largest)}",
                hint={
                    "KV cache": f"fewer {group.name.removesuffix('.engine')}.slots or a smaller "
                    "max_length",
                    "activations": "a smaller micro_batch",
                }.get(worst, f"a smaller module, or a smaller dtype than that of its {worst}"),
            )


def _check_hosts(state: State) -> None:
    """Each node's memory holds its processes, helpers included, before a single record is made."""
    workers = Counter(place.node for group in state.groups for place in group.places)
    for i, node in enumerate(state.cluster.nodes):
        helpers = 1 if i == 0 else 0  # the orchestrator lives on the first node
        own = workers[node.name]
        needed = (own + helpers) * PROCESS_BYTES
        if node.memory_bytes and needed > node.memory_bytes:
            sum_ = counted(own, "worker") + (" + the orchestrator" if helpers else "")
            fewer = -(-(needed - node.memory_bytes) // PROCESS_BYTES)
            raise PlanError(
                f"node {node.name!r} has {node.memory_bytes >> 20} MiB, and its processes need "
                f"{needed >> 20} MiB at the very least ({sum_}, {PROCESS_BYTES >> 20} MiB each)",
                hint=f"{fewer} fewer workers there, or {needed >> 20} MiB",
            )


def _explain(state: State, choices: Choices) -> None:
    workers = Counter(place.node for group in state.groups for place in group.places)
    used = Counter(
        node
        for node, device in {
            (place.node, place.device) for group in state.groups for place in group.places
        }
        if device >= 0
    )
    for node in state.cluster.nodes:
        count = workers[node.name]
        if not count:
            continue
        because = f"{used[node.name]} of {counted(node.devices, 'device')} used"
        if state.cluster.kind(node.device).kind == "cpu":
            because = (
                f"{counted(node.cores, 'core')}, {counted(count, 'worker')} share them: "
                f"{count / node.cores:.2g} a core"
            )
        choices.choose(node.name, "workers", count, because)
