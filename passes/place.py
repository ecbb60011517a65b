"""place: a node and a device for every process."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.errors import PlanError
from flowgraph.ir.plan import Place, WorkerGroup
from flowgraph.passes.demand import accelerated
from flowgraph.passes.state import Choices, State


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

    Ranks of a gang, then engines, take the least loaded device, a group's own nodes first. Stage
    workers live on the hosts' cores (device -1). Refuses what does not fit. Changes nothing else.
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
    needed, have = sum(group.replicas for group in groups), sum(seat.slots for seat in seats)
    if needed <= have:
        return
    asked = " + ".join(f"{group.name} {group.replicas}" for group in groups)
    nodes = {seat.node for seat in seats}
    largest = max(groups, key=lambda group: group.replicas)
    slots = seats[0].slots if seats else 0
    hint = (
        f"{largest.replicas - (needed - have)} processes of {largest.name}, "
        if largest.replicas > needed - have
        else ""
    )
    raise PlanError(
        f"the plan needs {needed} devices ({asked}), cluster {state.cluster.name!r} has {have} "
        f"({len(seats)} devices on {len(nodes)} nodes, {slots} workers a device)",
        hint=f"{hint}or a cluster with {needed - have} more",
    )


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
    load = dict.fromkeys(seats, 0)
    places: dict[str, tuple[Place, ...]] = {}
    for group in _movable(state.groups):
        mine: list[Place] = []
        for _ in range(group.replicas):
            nodes = {place.node for place in mine}
            free = [seat for seat in seats if load[seat] < seat.slots]
            # A full seat is as loaded as it can be: compare shares, so that uneven seats fill alike.
            seat = min(free, key=lambda s: (load[s] / s.slots, bool(nodes) and s.node not in nodes))
            load[seat] += 1
            mine.append(Place(node=seat.node, device=seat.device))
        places[group.name] = tuple(mine)
    hosts = [node.name for node in state.cluster.nodes]
    for group in state.groups:
        if group.kind == "stage":
            spread = (hosts[i % len(hosts)] for i in range(group.replicas))
            places[group.name] = tuple(Place(node=node) for node in spread)
    groups = tuple(replace(group, places=places[group.name]) for group in state.groups)
    return Placed(groups, load)


def _explain(state: State, placed: Placed, choices: Choices) -> None:
    nodes = {node.name: node for node in state.cluster.nodes}
    for name, node in nodes.items():
        workers = sum(place.node == name for group in placed.groups for place in group.places)
        if not workers:
            continue
        if state.cluster.kind(node.device).kind == "cpu":
            share = f"{workers / node.cores:.2g}"
            because = f"{node.cores} cores, {workers} workers share them: {share} a core"
        else:
            used = sum(bool(load) for seat, load in placed.load.items() if seat.node == name)
            because = f"{used} of {node.devices} devices used"
        choices.choose(name, "workers", workers, because)
