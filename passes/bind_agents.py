"""bind-agents: the groups of workers, and which agent's calls each engine answers."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from flowgraph.ir.graph import Agent
from flowgraph.ir.index import attribute
from flowgraph.ir.plan import Layout, WorkerGroup
from flowgraph.passes.demand import (
    calls_a_step,
    max_length_of,
    prompt_tokens,
    response_tokens,
    slots_of,
    unit_of,
    used_agents,
)
from flowgraph.passes.growth import grown, upgraded
from flowgraph.passes.rooms import rooms_of
from flowgraph.passes.state import Choices, State
from flowgraph.passes.taking_turns import take_turns
from flowgraph.passes.words import counted
from flowgraph.passes.works import gang_modules

CORES_A_HOST = 8
"""Cores for which one more stage worker is started."""

MOST_HOSTS = 16


@dataclass(frozen=True, slots=True)
class BindAgents:
    """Requires counts. Ensures a group for the host, each played agent and each held module, whose
    turn it is where trainers share devices, and the room in which groups may move at run time.

    Each agent has engines of its own; agents that share a module are loaded with the same weights.
    Spare devices become engines of the agents whose calls hold up the step.
    Turns: the earliest end of the step by the model of time that the simulator hands out work by
    (`runtime.policy.step_chain`); the ILP's for few trainers, a heuristic's with its gap for many.
    Who must leave its devices between turns is offloaded while the hosts' memory lasts, else
    destroyed.
    Changes nothing else.
    """

    solver: str = "highs"
    name: ClassVar[str] = "bind-agents"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        host = _host(state, choices)
        engines = [_engine(state, agent, choices) for agent in used_agents(state.graph)]
        gangs = [
            WorkerGroup(
                name=f"{module.name}.gang",
                kind="gang",
                module=module.name,
                replicas=state.counts[f"{module.name}.gang"],
                layout=layout_of(state, f"{module.name}.gang"),
            )
            for module in gang_modules(state)
        ]
        turns = take_turns(state, choices, self.solver)
        gangs = [replace(gang, **turns.get(gang.name, {})) for gang in gangs]
        state = upgraded(replace(state, groups=(host, *engines, *gangs)), choices)
        state = grown(state, choices)
        rooms = rooms_of(state, state.groups[1:], choices)
        return choices.onto(state, rooms=rooms)


def layout_of(state: State, group: str) -> Layout:
    """The chosen layout of a gang; on shared cores all ranks share the data."""
    chosen = state.layouts.get(group)
    return chosen.layout if chosen else Layout(dp=state.counts[group])


def _host(state: State, choices: Choices) -> WorkerGroup:
    cores = sum(node.cores for node in state.cluster.nodes)
    flights = [attribute(stage, "in_flight") for stage in state.graph.by_op("episodes")]
    most = min([MOST_HOSTS, *flights])
    count = max(1, min(most, cores // CORES_A_HOST))
    because = f"{counted(cores, 'core')}, a stage worker for each {CORES_A_HOST}, 1 to {most}"
    replicas = choices.choose("host", "replicas", count, because)
    share = math.ceil(max(flights, default=0) / replicas)
    unit, _ = unit_of(state)
    held = share if flights else 2 * unit
    because = (
        f"{counted(max(flights), 'task')} in flight over {counted(replicas, 'worker')}"
        if flights
        else f"two units of {unit}: one is made while the other is read"
    )
    choices.choose("host", "in_flight", held, because)
    return WorkerGroup(name="host", kind="stage", replicas=replicas, in_flight=held)


def _engine(state: State, agent: Agent, choices: Choices) -> WorkerGroup:
    slots = choices.choose(agent.name, "slots", *slots_of(state, agent))
    length = choices.choose(agent.name, "max_length", *max_length_of(state, agent))
    tokens = float(calls_a_step(state, agent)) * (prompt_tokens(agent) + response_tokens(agent))
    name = f"{agent.name}.engine"
    choices.choose(name, "backlog", f"{tokens:.0f} tokens", "expected calls x tokens, a step")
    return WorkerGroup(
        name=name,
        kind="engine",
        module=agent.module,
        agents=(agent.name,),
        replicas=state.counts[name],
        layout=state.layouts[name].layout if name in state.layouts else Layout(),
        slots=slots,
        max_length=length,
    )
