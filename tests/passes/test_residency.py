"""Where the state of a trainer is while another has its turn on their devices."""

from dataclasses import replace

import pytest

from flowgraph.passes.bind_agents import BindAgents
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.sharing import state_bytes
from flowgraph.passes.state import State
from tests.passes.graphs import gpus, marl

GANGS = ("solver.gang", "verifier.gang")


def in_turn() -> State:
    """Two trainers on one device; what each has to keep between turns fits beside the other."""
    names = [step.name for step in PIPELINE]
    state = run_passes(PIPELINE[: names.index("bind-agents")], marl(), gpus(1, 3))
    assert {name for own in state.sharing.members.values() for name in own} == {*GANGS}
    return state


def crowded(hosts: int) -> State:
    """The same on a device that holds one of them alone. hosts: bytes of the node's memory."""
    state = in_turn()
    most = max(state.layouts[gang].memory_bytes for gang in GANGS)
    kind = replace(state.cluster.kinds[0], memory_bytes=most)
    node = replace(state.cluster.nodes[0], memory_bytes=hosts)
    return replace(state, cluster=replace(state.cluster, kinds=(kind,), nodes=(node,)))


def residencies(state: State) -> dict[str, str]:
    bound = BindAgents().apply(state)
    told = {d.subject: d.value for d in bound.decisions if d.name == "residency"}
    assert told == {g.name: g.residency for g in bound.groups if g.name in GANGS}
    return told


def kept(state: State) -> list[int]:
    """Bytes that outlive a turn, of each that is not resident, in the order of turns."""
    bound = BindAgents().apply(state)
    gangs = sorted((g for g in bound.groups if g.name in GANGS), key=lambda group: group.turn)
    return [state_bytes(state.layouts[g.name]) for g in gangs if g.residency != "resident"]


def test_states_that_fit_beside_one_another_stay_on_the_device() -> None:
    assert residencies(in_turn()) == dict.fromkeys(GANGS, "resident")


def test_what_the_device_does_not_hold_goes_to_the_hosts_memory() -> None:
    assert "offloaded" in residencies(crowded(1 << 40)).values()
    assert "destroyed" not in residencies(crowded(1 << 40)).values()


@pytest.mark.parametrize("holds", [0, 1, 2])
def test_half_of_the_hosts_memory_is_for_states_and_the_rest_of_them_are_destroyed(
    holds: int,
) -> None:
    sizes = kept(crowded(1 << 40))
    found = residencies(crowded(2 * sum(sizes[:holds])))
    assert list(found.values()).count("offloaded") == min(holds, len(sizes))
    assert list(found.values()).count("destroyed") == len(sizes) - min(holds, len(sizes))
