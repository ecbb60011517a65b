"""Order and residency of trainers that share devices, from when each one's rollout is done."""

from collections.abc import Mapping
from typing import Any

from flowgraph.ir.errors import InternalError
from flowgraph.passes.binding.solve import solve_turns
from flowgraph.passes.binding.turns import Job, TurnProblem, Turns, check, in_order
from flowgraph.passes.demand import used_agents
from flowgraph.passes.sharing import state_bytes, swap_seconds
from flowgraph.passes.state import Choices, State
from flowgraph.passes.words import seconds_text


def take_turns(state: State, choices: Choices, solver: str) -> dict[str, dict[str, Any]]:
    """By gang: `shares`, `turn` and `residency`. Empty where nobody shares devices."""
    found: dict[str, dict[str, Any]] = {}
    ready = ready_seconds(state)
    left = _host_memory(state)
    for shared, members in state.sharing.members.items():
        jobs = tuple(_job(state, gang, ready) for gang in members)
        memory = max(job.memory for job in jobs)
        kind = state.cluster.kind(state.layouts[members[0]].kind)
        problem = TurnProblem(jobs=jobs, groups=1, memory=max(memory, kind.memory_bytes))
        turns = solve_turns(problem, solver=solver)
        if turns is None or (wrong := check(problem, turns)):
            raise InternalError(f"bind-agents: turns of {shared}: {turns and wrong}")
        order = [job.name for job in in_order(jobs)]
        # The widest holds the devices; the others use the first of them.
        leader = max(order, key=lambda gang: (state.layouts[gang].devices, -order.index(gang)))
        for i, gang in enumerate(order):
            option = state.layouts[gang]
            kept = state_bytes(option) * option.devices
            residency = "resident" if gang in turns.resident else "offloaded"
            if residency == "offloaded" and kept > left:
                residency = "destroyed"
            left -= kept if residency == "offloaded" else 0
            why = _why(turns, gang, residency, swap_seconds(option), ready.get(gang, 0.0))
            choices.choose(gang, "residency", residency, why)
            choices.choose(
                gang,
                "turn",
                i,
                f"{shared}: in the order of readiness, done after "
                f"{seconds_text(turns.seconds)} (gap {turns.gap:.1%}, {turns.by})",
            )
            found[gang] = {
                "shares": "" if gang == leader else leader,
                "turn": i,
                "residency": residency,
            }
    return found


def ready_seconds(state: State) -> Mapping[str, float]:
    """By gang, when the rollout of what it trains is done: no earlier than that of the agents
    whose calls come before."""
    done: dict[str, float] = {}
    agents = {agent.name: agent for agent in used_agents(state.graph)}

    def finish(name: str) -> float:
        if name not in done:
            own = state.costs[f"{name}.engine"].seconds
            before = [finish(other) for other in agents[name].after if other in agents]
            done[name] = max([own, *before])
        return done[name]

    found: dict[str, float] = {}
    for agent in agents.values():
        gang = f"{agent.module}.gang"
        found[gang] = max(found.get(gang, 0.0), finish(agent.name))
    return found


def _job(state: State, gang: str, ready: Mapping[str, float]) -> Job:
    option = state.layouts[gang]
    return Job(
        name=gang,
        ready=ready.get(gang, 0.0),
        seconds=option.seconds,
        swap=swap_seconds(option),
        memory=option.memory_bytes,
    )


def _host_memory(state: State) -> int:
    """Bytes of the hosts' memory that offloaded states may take: half of it."""
    nodes = state.cluster.nodes
    return sum(n.memory_bytes for n in nodes if state.cluster.kind(n.device).kind != "cpu") // 2


def _why(turns: Turns, gang: str, residency: str, swap: float, ready: float) -> str:
    said = f"ready after {seconds_text(ready)}; out and in again takes {seconds_text(swap)}"
    if residency == "resident":
        return f"{said}, which it need not"
    if residency == "offloaded":
        return f"{said}; the device does not hold all of them"
    return f"{said}, and the hosts have no memory left to keep it"
