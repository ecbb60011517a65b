"""The episodes stage: the user's async function plays a task with agents."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from flowgraph.dsl.annotations import first_annotation
from flowgraph.dsl.draft import Draft
from flowgraph.dsl.functions import AnyFunction, origin, refer
from flowgraph.dsl.location import refuse, user_line
from flowgraph.dsl.models import AgentRef
from flowgraph.dsl.plain import plain_parameters
from flowgraph.dsl.records import check_input
from flowgraph.dsl.signature import check_parameters, leading_parameters
from flowgraph.dsl.units import one_of, real, whole
from flowgraph.ir.graph import Stage, Stream
from flowgraph.ir.types import AGENT_ROW

_OWN = ("agents", "trajectories", "in_flight", "timeout_s", "on_timeout", "name", "devices")
_ON_TIMEOUT = ("fail", "drop")


def add_episodes(
    draft: Draft,
    stream: str,
    function: AnyFunction,
    agents: Sequence[AgentRef],
    params: Mapping[str, Any],
    *,
    trajectories: int,
    in_flight: int,
    timeout_s: float,
    on_timeout: str,
    name: str | None,
    devices: int,
) -> Stage:
    """Record an episodes stage, yet without outputs: `add_rows` adds those that are asked for."""
    automatic = getattr(function, "__name__", "episodes").strip("_") or "episodes"
    role = f"episodes '{name or automatic}'"
    reference = refer(function, params, role=role)
    if not inspect.iscoroutinefunction(function):
        raise refuse(
            f"{role}: '{function.__name__}' must be async, to await its agents{origin(function)}",
            hint=f"async def {function.__name__}(...)",
        )
    ordered = _in_order(function, [agent.name for agent in agents], role)
    given = ("the task", *(f"the agent {_parameter(agent)}" for agent in ordered))
    check_parameters(function, params, role=role, given=given, reserved=_OWN)
    type = draft.streams[stream].type
    if type.key != ("sample",):
        raise refuse(f"{role}: expects samples, stream '{stream}' has records by {type.key}")
    check_input(first_annotation(function, role), stream, type, role=role)
    return draft.add(
        Stage(
            name=draft.claim("stage", name, automatic),
            op="episodes",
            inputs=(stream,),
            attributes={
                "trajectories": whole(trajectories, f"{role}: trajectories a task", least=1),
                "in_flight": whole(in_flight, f"{role}: in_flight, in tasks", least=1),
                "timeout_s": real(timeout_s, f"{role}: timeout_s, in seconds", above=0),
                "on_timeout": one_of(on_timeout, f"{role}: on_timeout", _ON_TIMEOUT),
            },
            function=reference,
            agents=tuple(ordered),
            devices=whole(devices, f"{role}: devices", least=0),
        )
    )


def add_rows(draft: Draft, episodes: str, agent: str) -> Stream:
    """The stream of an agent's calls; recorded when first asked for."""
    stage = draft.stages[episodes]
    if agent not in stage.agents:
        raise refuse(
            f"episodes '{episodes}': '{agent}' does not play in it",
            hint=f"one of {', '.join(stage.agents)}",
        )
    name = f"{episodes}.{agent}"
    if name not in draft.streams:
        wanted = (*(output.rpartition(".")[2] for output in stage.outputs), agent)
        outputs = tuple(f"{episodes}.{one}" for one in stage.agents if one in wanted)
        draft.stages[episodes] = replace(stage, outputs=outputs)
        draft.streams[name] = Stream(name=name, producer=episodes, type=AGENT_ROW, at=user_line())
    return draft.streams[name]


def checked_overrides(
    draft: Draft, episodes: str, function: AnyFunction, overrides: Mapping[str, Any], *, role: str
) -> dict[str, Any]:
    """Parameters that replace those of the episodes' function, as plain data."""
    stage = draft.stages[episodes]
    assert stage.function is not None
    params = {**stage.function.params, **overrides}
    given = ("the task", *stage.agents)
    check_parameters(function, params, role=role, given=given)
    return plain_parameters(overrides, role)


def _in_order(function: AnyFunction, agents: list[str], role: str) -> list[str]:
    """The agents in the order of the function's parameters after the task.

    By name if every such parameter is named like an agent; else by position. A parameter that is
    named like an agent but would get another one is refused.
    """
    if not agents:
        raise refuse(f"{role}: expects at least one agent", hint="agents=[solver]")
    twice = next((agent for agent in agents if agents.count(agent) > 1), None)
    if twice is not None:
        raise refuse(f"{role}: agent '{twice}' is listed twice")
    named = {_parameter(agent): agent for agent in agents}
    leading = [p.name for p in leading_parameters(function)[1 : len(agents) + 1]]
    if set(leading) == set(named):
        return [named[parameter] for parameter in leading]
    for parameter, agent in zip(leading, agents, strict=False):
        if parameter in named and named[parameter] != agent:
            raise refuse(
                f"{role}: '{function.__name__}' would get agent '{agent}' as '{parameter}'"
                f"{origin(function)}",
                hint=f"name the parameters {', '.join(named)}",
            )
    return agents


def _parameter(agent: str) -> str:
    return agent.replace("-", "_")
