"""Seats on devices, and taking them: one by one where they are shared, in pieces where not."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.plan import Place, WorkerGroup
from flowgraph.passes.matching.problem import Nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A device that takes `slots` workers and holds `memory` bytes (0: not stated)."""

    node: str
    device: int
    kind: str = ""
    slots: int = 1
    memory: int = 0


def nodes_of(cluster: Cluster) -> tuple[Nodes, ...]:
    """The nodes with accelerators, as the matching of layouts sees them."""
    return tuple(
        Nodes(kind=node.device, devices=node.devices * cluster.kind(node.device).slots)
        for node in cluster.nodes
        if cluster.kind(node.device).kind != "cpu"
    )


def spread(groups: Iterable[WorkerGroup], seats: Sequence[Seat]) -> dict[str, tuple[Place, ...]]:
    """Groups take the least filled seats in order: each fills node by node."""
    load = dict.fromkeys(seats, 0)
    # Shares, not counts: seats with differing numbers of slots fill alike.
    free = [(0.0, i) for i in range(len(seats))]
    places: dict[str, tuple[Place, ...]] = {}
    for group in groups:
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
    return places


class Bins:
    """Free seats by node, taken in pieces that lie on one node.

    A node's seats are taken in the order of its devices, slot by slot, so that a piece no larger
    than the node has devices gets different ones.
    """

    def __init__(self, seats: Iterable[Seat]) -> None:
        own: dict[str, list[Seat]] = {}
        for seat in seats:
            own.setdefault(seat.node, []).append(seat)
        self._kinds = {node: many[0].kind for node, many in own.items()}
        self._order = {node: i for i, node in enumerate(own)}
        self._free = {
            node: [
                Place(node=node, device=seat.device)
                for slot in range(max(seat.slots for seat in many))
                for seat in many
                if slot < seat.slots
            ]
            for node, many in own.items()
        }

    def take(
        self, size: int, kind: str, near: Mapping[str, int], beside: Sequence[Place]
    ) -> list[Place]:
        """`size` seats on one node of a kind. near: bytes that the piece's group sends to each
        node; beside: places that the group has already, whose node is best when it has room.

        Raises ValueError when no node has room, which the choice of layouts rules out.
        """
        last = beside[-1].node if beside else ""
        fitting = [
            node
            for node, free in self._free.items()
            if self._kinds[node] == kind and len(free) >= size
        ]
        if not fitting:
            raise ValueError(f"no node of {kind!r} has {size} free devices")
        chosen = max(
            fitting,
            key=lambda node: (
                node == last,
                near.get(node, 0),
                -len(self._free[node]),  # the fullest, so that whole nodes stay whole
                -self._order[node],
            ),
        )
        free = self._free[chosen]
        self._free[chosen] = free[size:]
        return free[:size]
