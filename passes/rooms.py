"""Room to move: what the orchestrator may change of a group without asking for a new plan."""

from collections.abc import Sequence

from flowgraph.ir.plan import Alternative, Room, WorkerGroup
from flowgraph.passes.demand import response_tokens
from flowgraph.passes.sharing import SWAP_BANDWIDTH
from flowgraph.passes.state import Choices, LaidOut, State
from flowgraph.passes.works import engine_work, places_of
from flowgraph.runtime.policy.roofline import shape_of

NEIGHBOURS = 3
"""Alternatives named on either side of the present layout."""


def rooms_of(state: State, groups: Sequence[WorkerGroup], choices: Choices) -> tuple[Room, ...]:
    """Engines may take each other's places but for one of each agent; gangs stay as they are,
    and say which layouts a new plan could give them."""
    engines = [group for group in groups if group.kind == "engine"]
    total = sum(group.replicas for group in engines)
    least = sum(group.layout.ranks for group in engines)
    found = []
    for group in groups:
        most = group.replicas
        fewest = group.replicas
        if group.kind == "engine":
            fewest = group.layout.ranks
            spare = total - least
            most = fewest + spare - spare % fewest
            because = "one instance of each agent stays; the others go where the backlog is"
            choices.choose(group.name, "room", f"{fewest} to {most} processes", because)
        found.append(
            Room(
                group=group.name,
                least=fewest,
                most=max(most, group.replicas),
                alternatives=_alternatives(state, group.name),
                move_seconds=_move_seconds(state, group),
            )
        )
    return tuple(found)


def _alternatives(state: State, group: str) -> tuple[Alternative, ...]:
    """The next fewer and the next more devices that change the time."""
    chosen = state.layouts.get(group)
    if chosen is None:
        return ()
    options = _frontier(state.options[group])
    fewer = [o for o in options if o.devices < chosen.devices][-NEIGHBOURS:]
    more = [o for o in options if o.devices > chosen.devices][:NEIGHBOURS]
    return tuple(
        Alternative(
            layout=o.layout, replicas=o.devices, seconds=o.seconds, memory_bytes=o.memory_bytes
        )
        for o in (*fewer, *more)
    )


def _frontier(options: Sequence[LaidOut]) -> list[LaidOut]:
    """By devices, those that are faster than all with fewer."""
    found: list[LaidOut] = []
    for option in sorted(options, key=lambda o: (o.devices, o.seconds)):
        if not found or option.seconds < found[-1].seconds:
            found.append(option)
    return found


def _move_seconds(state: State, group: WorkerGroup) -> float:
    """An engine's: its open calls run out, and the other agent's weights come. A gang's: its state
    goes out and in again."""
    shape = shape_of(state.graph.module(group.module))
    size = shape.parameters * shape.bytes / group.layout.ranks
    if group.kind != "engine":
        return 2 * size / SWAP_BANDWIDTH
    agent = state.graph.agent(group.agents[0])
    times = engine_work(state, agent, places_of(state)[0]).times
    return size / SWAP_BANDWIDTH + response_tokens(agent) * times.iteration(1.0)
