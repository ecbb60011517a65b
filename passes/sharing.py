"""Fewer devices than parts: trainers take turns on device groups.

Only trainers whose module is not applied to records too may share: those others are needed on both
sides of a step at once.
"""

from collections.abc import Iterator, Mapping, Sequence

from flowgraph.ir.graph import Module
from flowgraph.passes.binding.solve import solve_turns
from flowgraph.passes.binding.turns import Job, TurnProblem
from flowgraph.passes.layout_costs import Place
from flowgraph.passes.layouts import powers
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.matching.ilp import Undecided
from flowgraph.passes.matching.problem import Option, Part, Problem, Solution
from flowgraph.passes.matching.solve import solve
from flowgraph.passes.state import LaidOut, Sharing, State
from flowgraph.passes.works import gang_modules, places_of

SWAP_BANDWIDTH = 2e10
"""Bytes/s between a device and its host, one way; PCIe 4 x16 has 3.2e10, less reaches a process."""


def swap_seconds(option: LaidOut) -> float:
    """Out and in again: weights, gradients and optimizer; activations do not outlive a turn."""
    return 2.0 * state_bytes(option) / SWAP_BANDWIDTH


def state_bytes(option: LaidOut) -> int:
    """Bytes a device of what outlives a turn."""
    return option.memory_bytes - option.terms.get("activations", 0)


def shareable(state: State) -> tuple[Module, ...]:
    """Modules whose gangs may take turns."""
    trained = trained_modules(state.graph)
    applied = {name for stage in state.graph.by_op("apply") for name in stage.modules}
    return tuple(m for m in gang_modules(state) if m.name in trained and m.name not in applied)


def sharings(
    state: State, problem: Problem, *, solver: str, seconds: float
) -> Iterator[tuple[Problem, Solution, Sharing]]:
    """An answer for each number of shared groups that fits, on the first kind of device."""
    gangs = [f"{module.name}.gang" for module in shareable(state)]
    place = places_of(state)[0]
    for count in range(len(gangs) - 1, 0, -1):
        made = _grouped(state, gangs, count, place)
        if made is None:
            continue
        sharing, parts = made
        kept = tuple(part for part in problem.parts if part.name not in gangs)
        smaller = Problem((*kept, *parts), problem.nodes)
        try:
            solution = solve(smaller, solver=solver, seconds=seconds)
        except Undecided:
            continue  # another number of groups may be easier
        if solution is not None:
            yield smaller, solution, sharing


def least_shared(state: State) -> tuple[tuple[str, ...], int] | None:
    """All gangs that may take turns, and the fewest devices on which each of them runs; None where
    fewer than two may, or one of them runs at no width that a node has."""
    gangs = tuple(f"{module.name}.gang" for module in shareable(state))
    place = places_of(state)[0]
    for width in powers(place.node) if len(gangs) > 1 else ():
        if all(_best(state, gang, width, place) for gang in gangs):
            return gangs, width
    return None


def _grouped(
    state: State, gangs: Sequence[str], count: int, place: Place
) -> tuple[Sharing, tuple[Part, ...]] | None:
    """`count` groups of the narrowest width that all gangs can run at, and wider ones."""
    members: dict[int, list[str]] = {}
    laid: dict[int, dict[int, dict[str, LaidOut]]] = {}
    for width in powers(place.node):
        best = {gang: _best(state, gang, width, place) for gang in gangs}
        found = {gang: option for gang, option in best.items() if option is not None}
        if len(found) < len(gangs):
            continue
        if not members:
            jobs = tuple(_job(gang, option) for gang, option in found.items())
            memory = place.memory_bytes or 1 << 62
            turns = solve_turns(TurnProblem(jobs=jobs, groups=count, memory=memory))
            if turns is None or len(set(turns.group.values())) < count:
                return None
            for gang, group in turns.group.items():
                members.setdefault(group, []).append(gang)
        for group, own in members.items():
            laid.setdefault(group, {})[width] = {gang: found[gang] for gang in own}
    if not members:
        return None
    named = {i: "+".join(name.removesuffix(".gang") for name in own) for i, own in members.items()}
    sharing = Sharing(
        members={named[i]: tuple(own) for i, own in members.items()},
        laid={named[i]: widths for i, widths in laid.items()},
    )
    return sharing, tuple(
        Part(name=named[i], options=_options(laid[i], place)) for i in sorted(members)
    )


def _options(widths: Mapping[int, Mapping[str, LaidOut]], place: Place) -> tuple[Option, ...]:
    return tuple(
        Option(
            name=str(width),
            kind=place.kind,
            rate=1.0 / max(1e-9, sum(o.seconds + swap_seconds(o) for o in own.values())),
            piece=width,
            most=1,
        )
        for width, own in widths.items()
    )


def _job(gang: str, option: LaidOut) -> Job:
    return Job(
        name=gang,
        ready=0.0,
        seconds=option.seconds,
        swap=swap_seconds(option),
        memory=option.memory_bytes,
    )


def _best(state: State, gang: str, width: int, place: Place) -> LaidOut | None:
    """The fastest layout of at most `width` devices of the kind."""
    own = [o for o in state.options[gang] if o.devices <= width and o.kind == place.kind]
    return min(own, key=lambda o: (o.seconds, o.devices), default=None)
