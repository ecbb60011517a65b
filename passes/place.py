"""place: a node and a device for every process."""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Place, WorkerGroup
from flowgraph.passes.demand import accelerated
from flowgraph.passes.state import Choices, State
from flowgraph.passes.words import counted


@dataclass(frozen=True, slots=True)
class Seat:
    """A device that takes `slots` workers and holds `memory` bytes (0: not stated)."""

    node: str
    device: int
    slots: int
    memory: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Where all groups went, and how many workers each seat holds."""

    groups: tuple[WorkerGroup, ...]
    load: Mapping[Seat, int]


@dataclass(frozen=True, slots=True)
class PlaceGroups:
    """Requires groups. Ensures `places` of each, as many as its replicas; deterministic.

    Ranks of gangs, then engines, take the least filled devices in the cluster's order, so that a
    group fills node by node. Stage workers live on the hosts' cores (device -1). Refuses what does
    not fit. Changes nothing else.
    """

    name: ClassVar[str] = "place"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        seats = _seats(state)
        _check_slots(state, seats)
        _check_memory(state, seats)
        placed = _place(state, seats)
        _explain(state, placed, choices)
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
        seats += [Seat(node.name, i, kind.slots, memory) for i in range(node.devices)]
    return tuple(seats)


def _movable(groups: Iterable[WorkerGroup]) -> list[WorkerGroup]:
    """Groups that take devices, gangs first: their ranks want to be near one another."""
    return sorted(
        (group for group in groups if group.kind != "stage"), key=lambda g: g.kind != "gang"
    )


def _check_slots(state: State, seats: tuple[Seat, ...]) -> None:
    groups = _movable(state.groups)
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
    largest = max((seat.memory for seat in seats), default=0)
    for group in _movable(state.groups):
        cost = state.costs[group.name]
        if largest and cost.memory_bytes > largest:
            terms = " + ".join(f"{name} {_gib(size)}" for name, size in cost.terms.items())
            raise PlanError(
                f"{group.name} needs {_gib(cost.memory_bytes)} a process ({terms}), the largest "
                f"device of cluster {state.cluster.name!r} has {_gib(largest)}",
                hint=_memory_hint(group, cost.terms),
            )


def _memory_hint(group: WorkerGroup, terms: Mapping[str, int]) -> str:
    worst = max(terms, key=lambda name: terms[name])
    return {
        "KV cache": f"fewer {group.name.removesuffix('.engine')}.slots or a smaller max_length",
        "activations": "a smaller micro_batch",
    }.get(worst, f"a smaller module or a smaller dtype than its {worst} take now")


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _place(state: State, seats: tuple[Seat, ...]) -> Placed:
    """Groups take the least filled seats in the cluster's order: each fills node by node."""
    load = dict.fromkeys(seats, 0)
    # Shares, not counts: seats with differing numbers of slots fill alike.
    free = [(0.0, i) for i in range(len(seats))]
    places: dict[str, tuple[Place, ...]] = {}
    for group in _movable(state.groups):
        mine: list[Place] = []
        for _ in range(group.replicas):
            seat = seats[free[0][1]]
            load[seat] += 1
            mine.append(Place(node=seat.node, device=seat.device))
            if load[seat] < seat.slots:
                heapq.heapreplace(free, (load[seat] / seat.slots, free[0][1]))
            else:
                heapq.heappop(free)
        places[group.name] = tuple(mine)
    hosts = [node.name for node in state.cluster.nodes]
    for group in state.groups:
        if group.kind == "stage":
            spread = (hosts[i % len(hosts)] for i in range(group.replicas))
            places[group.name] = tuple(Place(node=node) for node in spread)
    groups = tuple(replace(group, places=places[group.name]) for group in state.groups)
    return Placed(groups, load)


def _explain(state: State, placed: Placed, choices: Choices) -> None:
    workers = Counter(place.node for group in placed.groups for place in group.places)
    used = Counter(seat.node for seat, load in placed.load.items() if load)
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
