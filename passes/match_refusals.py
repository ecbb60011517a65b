"""What match-throughput says when no layouts make a plan, with the smallest change that would."""

import math

from flowgraph.ir.errors import PlanError
from flowgraph.passes.layouts import pipeline_ways, tensor_ways
from flowgraph.passes.matching.problem import Option, Problem
from flowgraph.passes.sharing import least_shared
from flowgraph.passes.state import State
from flowgraph.passes.words import counted, listed
from flowgraph.passes.works import gang_work, places_of


def accelerators(state: State) -> int:
    """One-device workers that fit on the accelerators."""
    nodes = [(node, state.cluster.kind(node.device)) for node in state.cluster.nodes]
    return sum(node.devices * kind.slots for node, kind in nodes if kind.kind != "cpu")


def unlayable(state: State, group: str, subject: str) -> PlanError:
    """Pins that no layout of a gang has: the one that is to blame, where it is one alone."""
    own = {
        name.rpartition(".")[2]: value
        for name, value in state.pins.values.items()
        if name.rpartition(".")[0] == subject
    }
    place = places_of(state)[0]
    model = gang_work(state, state.graph.module(subject), place).model
    have = accelerators(state)
    ways = {"tp": tensor_ways(model, place.node), "pp": pipeline_ways(model, have)}
    because = {"tp": "heads and nodes", "pp": "layers and devices"}
    for way, allowed in ways.items():
        pinned = own.get(way)
        if pinned and pinned not in allowed:
            nearest = max(count for count in allowed if count <= pinned)
            return PlanError(
                f"pin {subject}.{way}={pinned}: {because[way]} allow "
                f"{', '.join(map(str, allowed))}",
                hint=f"{subject}.{way}={nearest}",
            )
    said = ", ".join(f"{subject}.{name}={value}" for name, value in own.items())
    wanted = math.prod(own.get(way, 1) for way in ("dp", "tp", "pp", "cp"))
    if wanted > have:
        return PlanError(
            f"{group}: {said} take {wanted} devices, cluster {state.cluster.name!r} has {have}",
            hint=f"a cluster with {counted(wanted - have, 'more device')}, or less pinned",
        )
    return PlanError(
        f"{group}: no layout{said and f' as {said}'} exists on the {have} devices of cluster "
        f"{state.cluster.name!r}",
        hint="layers must divide by pp, heads by tp, and dp x tp x pp x cp be the ranks",
    )


def refusal(state: State, problem: Problem) -> PlanError:
    """The least that all parts need against what there is."""
    least = {part.name: min(part.options, key=lambda o: o.devices) for part in problem.parts}
    if shared := least_shared(state):
        gangs, width = shared
        for name in gangs:
            del least[name]
        own = f"{listed(gangs)} in turn"
        least[own] = Option(name=own, kind="", rate=1.0, piece=width)
    needed, have = sum(option.devices for option in least.values()), accelerators(state)
    asked_for = " + ".join(f"{name} {option.devices}" for name, option in least.items())
    if needed > have:
        return PlanError(
            f"the plan needs {needed} devices at least ({asked_for}), cluster "
            f"{state.cluster.name!r} has {have}",
            hint=f"a cluster with {counted(needed - have, 'more device')}, or fewer pinned",
        )
    pieces = ", ".join(f"{name} in pieces of {option.piece}" for name, option in least.items())
    return PlanError(
        f"the plan needs {needed} devices at least ({asked_for}), and the nodes of cluster "
        f"{state.cluster.name!r} have {have}, but do not hold them whole ({pieces})",
        hint="nodes with more devices each, or smaller tp",
    )
