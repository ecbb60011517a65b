"""What spare devices are good for: a faster kind for a part, and more engines for an agent.

match-throughput gives each part what the slowest of all leaves useful when parts overlap. A game's
agents call after one another, and trainers begin behind them, so that the step also waits for parts
that are not the slowest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowgraph.ir.plan import WorkerGroup
from flowgraph.passes.matching.problem import Choice, Nodes, Option, Problem, fits
from flowgraph.passes.prediction import group_seconds, works_in_step
from flowgraph.passes.seating import nodes_of
from flowgraph.passes.state import Choices, LaidOut, State
from flowgraph.passes.words import counted
from flowgraph.runtime.policy.step_chain import Work, step_chain
from flowgraph.runtime.policy.step_time import bound_seconds

LEAST_GAIN = 0.01
"""Of a step, that a change must save: less is within what an estimate errs by."""


def upgraded(state: State, choices: Choices) -> State:
    """Requires groups. The state with parts on as many devices of another kind, which are spare,
    where that shortens the predicted step by at least `LEAST_GAIN`, the most saving one first.

    Counts, layouts and micro-batches stay. Nothing changes where trainers take turns.
    """
    if not state.layouts or state.sharing.members:
        return state
    works, seconds = works_in_step(state), dict(group_seconds(state))
    nodes, laid = nodes_of(state.cluster), dict(state.layouts)
    first = step = _step(state, works, seconds, seconds)
    while True:
        best: tuple[float, str, LaidOut] | None = None
        for group, option in _other_kinds(state, laid):
            after = _step(state, works, seconds, {**seconds, group: option.seconds})
            if step - after < LEAST_GAIN * step or (best is not None and after >= best[0]):
                continue
            if _fit({**laid, group: option}, nodes):
                best = (after, group, option)
        if best is None:
            break
        step, group, option = best
        works = _scaled(works, group, option.seconds / seconds[group])
        laid[group], seconds[group] = option, option.seconds
    for group, option in laid.items():
        if option is not state.layouts[group]:
            why = f"spare devices: without this kind a step takes {first / step - 1:.1%} longer"
            choices.choose(group, "kind", option.kind, why, state.layouts[group].kind)
    return _with(state, laid)


def _other_kinds(state: State, laid: Mapping[str, LaidOut]) -> list[tuple[str, LaidOut]]:
    """(group, option) with what the group has now on another kind of device."""
    return [
        (group, option)
        for group, now in laid.items()
        for option in state.options[group]
        if option.kind != now.kind
        and (option.layout, option.replicas, option.micro_batch)
        == (now.layout, now.replicas, now.micro_batch)
    ]


def grown(state: State, choices: Choices) -> State:
    """Requires groups. The state with more engines where that shortens the predicted step by at
    least `LEAST_GAIN`, the most seconds a device first, as long as devices are spare.

    Layouts and kinds stay; counts that are pinned too. Nothing changes where trainers take turns:
    devices are short there.
    """
    if not state.layouts or state.sharing.members:
        return state
    works, seconds = works_in_step(state), dict(group_seconds(state))
    nodes = nodes_of(state.cluster)
    laid = dict(state.layouts)
    step = _step(state, works, seconds, seconds)
    while True:
        best: tuple[float, str, LaidOut, float] | None = None
        for agent, group, option in _moves(state, laid):
            after = _step(state, works, seconds, {**seconds, group: option.seconds})
            extra = option.devices - laid[group].devices
            worth = (step - after) / extra
            if step - after < LEAST_GAIN * step or (best is not None and worth <= best[0]):
                continue
            if _fit({**laid, group: option}, nodes):
                best = (worth, agent, option, after)
        if best is None:
            break
        _, agent, option, step = best
        group = f"{agent}.engine"
        laid[group] = option
        works = _scaled(works, group, option.seconds / seconds[group])
        seconds[group] = option.seconds
    for played in state.graph.agents:
        group = f"{played.name}.engine"
        before = state.layouts.get(group)
        if before is not None and laid[group] is not before:
            without = _step(state, works, seconds, {**seconds, group: before.seconds})
            why = "spare devices: its calls hold up the step"
            worse = f"{counted(before.devices, 'device')}, {without / step - 1:+.1%} a step"
            choices.choose(played.name, "engines", laid[group].replicas, why, worse)
    return _with(state, laid)


def _moves(state: State, laid: Mapping[str, LaidOut]) -> list[tuple[str, str, LaidOut]]:
    """(agent, group, option) with the next larger count of each agent's engines."""
    found = []
    for agent in state.graph.agents:
        group = f"{agent.name}.engine"
        if group not in laid or state.pins.get(agent.name, "engines"):
            continue
        now = laid[group]
        larger = [
            option
            for option in state.options[group]
            if (option.layout, option.kind) == (now.layout, now.kind)
            and option.replicas > now.replicas
        ]
        if larger:
            found.append((agent.name, group, min(larger, key=lambda option: option.replicas)))
    return found


def _step(
    state: State,
    works: Sequence[Work],
    old: Mapping[str, float],
    new: Mapping[str, float],
) -> float:
    """Seconds of the step when groups take `new` where the works are of `old`."""
    for group, seconds in new.items():
        if seconds != old[group]:
            works = _scaled(works, group, seconds / old[group])
    return max(step_chain(works).seconds, bound_seconds(new, state.groups, state.cluster))


def _scaled(works: Sequence[Work], group: str, factor: float) -> tuple[Work, ...]:
    return tuple(
        replace(work, seconds=work.seconds * factor) if work.group == group else work
        for work in works
    )


def _fit(laid: Mapping[str, LaidOut], nodes: tuple[Nodes, ...]) -> bool:
    choices = [
        Choice(
            Option(
                name=group,
                kind=option.kind,
                rate=1.0,
                piece=option.layout.tp,
                pieces=option.devices // option.layout.tp,
            ),
            1,
        )
        for group, option in laid.items()
    ]
    return fits(Problem((), nodes), choices)


def _with(state: State, laid: Mapping[str, LaidOut]) -> State:
    changed = {name: o for name, o in laid.items() if o is not state.layouts[name]}
    if not changed:
        return state
    costs = {
        name: replace(
            state.costs[name], seconds=o.seconds, memory_bytes=o.memory_bytes, terms=o.terms
        )
        for name, o in changed.items()
    }
    groups: list[WorkerGroup] = [
        replace(group, replicas=changed[group.name].devices) if group.name in changed else group
        for group in state.groups
    ]
    return replace(
        state,
        layouts=laid,
        counts={**state.counts, **{name: o.devices for name, o in changed.items()}},
        costs={**state.costs, **costs},
        groups=tuple(groups),
    )
