"""The predicted time of a step: what the passes weigh plans by, and what a plan says."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from flowgraph.ir.index import Index, index
from flowgraph.ir.plan import Task, WorkerGroup
from flowgraph.passes.demand import batch_of, unit_of
from flowgraph.passes.sharing import swap_seconds
from flowgraph.passes.state import State
from flowgraph.passes.tasks import form_tasks
from flowgraph.passes.works import gang_work, only_models, places_of
from flowgraph.runtime.policy.step_chain import Chain, Work, step_chain
from flowgraph.runtime.policy.step_time import bound_seconds

FORWARD = 1 / 3
"""Of a trained module's time; backward takes twice as long."""


def step_seconds(state: State) -> float:
    """Requires groups. Of the chain of works that wait for one another, or, where it is more, of
    the busiest process or the most crowded cores."""
    seconds = group_seconds(state)
    return max(chain_of(state).seconds, bound_seconds(seconds, state.groups, state.cluster))


def group_seconds(state: State) -> Mapping[str, float]:
    """By group, of a step's demand, by all of its processes together."""
    # A chosen layout's seconds are of all its processes; others' are of one.
    return {
        g.name: state.costs[g.name].seconds / (1 if g.name in state.layouts else g.replicas)
        for g in state.groups
    }


def chain_of(state: State) -> Chain:
    """The works of a step in order of who waits for whom. Requires groups."""
    return step_chain(works_in_step(state))


def works_in_step(state: State) -> tuple[Work, ...]:
    """One work a task; an engine's own behind the game that calls it, in the agents' order; and a
    backward one behind the trainers for each forward that gets a gradient.

    A game's works take all records at once: a host and the engines it calls wait for one another.
    What needs no weights is made while the steps before are trained, and is there.
    """
    at = index(state.graph)
    tasks = state.tasks or form_tasks(at)
    seconds = group_seconds(state)
    held = {group.name: group for group in state.groups}
    makers = _makers(at, tasks)
    sharers = Counter(task.group for task in tasks)
    models = only_models(state)
    found: list[Work] = []
    for task in tasks:
        reads = tuple(dict.fromkeys(m for s in task.inputs for m in makers.get(s, ())))
        own = seconds[task.group] / sharers[task.group] if task.versioned else 0.0
        barred = not any(o.kind == "apply" and set(o.outputs) & set(task.inputs) for o in tasks)
        share = _share(models, task, held[task.group], barred)
        returned = _gradients(at, task, tasks) if task.kind == "apply" else ()
        ahead = FORWARD if returned else 1.0
        found.append(
            Work(name=task.name, group=task.group, seconds=own * ahead, share=share, reads=reads)
        )
        if returned:
            name, rest = f"{task.name}.backward", own * (1 - ahead)
            found.append(
                Work(name=name, group=task.group, seconds=rest, share=share, reads=returned)
            )
        found += _engines(at, task, seconds)
    return _in_turn(state, found)


def _makers(at: Index, tasks: tuple[Task, ...]) -> Mapping[str, tuple[str, ...]]:
    """By stream, the works that its records come from: a game's end with its engines' calls."""
    found: dict[str, tuple[str, ...]] = {}
    for task in tasks:
        works = (task.name, *(f"{task.name}/{agent}" for agent in _agents(at, task)))
        found |= dict.fromkeys(task.outputs, works)
    return found


def _agents(at: Index, task: Task) -> tuple[str, ...]:
    """Whom the task's games call."""
    games = (at.stages[s] for s in task.stages if at.stages[s].op == "episodes")
    return tuple(dict.fromkeys(name for game in games for name in game.agents))


def _engines(at: Index, task: Task, seconds: Mapping[str, float]) -> list[Work]:
    """The calls of the task's games; an agent that plays in several is busy with each alike."""
    agents = _agents(at, task)
    found = []
    for name in agents:
        games = len([s for s in at.graph.by_op("episodes") if name in s.agents])
        own = len([s for s in task.stages if name in at.stages[s].agents])
        before = [other for other in at.agents[name].after if other in agents]
        found.append(
            Work(
                name=f"{task.name}/{name}",
                group=f"{name}.engine",
                seconds=seconds[f"{name}.engine"] * own / max(1, games),
                reads=(task.name, *(f"{task.name}/{other}" for other in before)),
            )
        )
    return found


def _gradients(at: Index, task: Task, tasks: tuple[Task, ...]) -> tuple[str, ...]:
    """Tasks that send gradients of what this one makes."""
    back = {f"{stream}.gradient" for stream in task.outputs}
    senders = {s.producer for s in at.graph.streams if s.kind == "gradient" and s.name in back}
    return tuple(other.name for other in tasks if senders & {*other.stages})


def _share(state: State, task: Task, group: WorkerGroup, barred: bool) -> float:
    """Of a step's records, what the group takes at once: all of them behind a barrier.

    barred: it reads from hosts only. Encoders train with those that read from them: a barrier parts
    the hosts' phase from theirs, and their items still follow one another.
    """
    if barred and task.kind == "train" and state.pins.get("schedule", "mode") == "barrier":
        return 1.0
    if task.kind != "train":
        unit, _ = unit_of(state)
        return min(1.0, unit * group.replicas / batch_of(state.graph))
    module = state.graph.module(group.module)
    work = gang_work(state, module, places_of(state)[0])
    laid = state.layouts.get(group.name)
    micro = (laid.micro_batch if laid else 0) or work.micro
    return min(1.0, micro * group.layout.dp / max(1.0, work.tokens))


def _in_turn(state: State, works: list[Work]) -> tuple[Work, ...]:
    """Trainers that share devices are behind one another, with their swaps."""
    turns: dict[str, list[WorkerGroup]] = {}
    for group in state.groups:
        if group.kind == "gang":
            turns.setdefault(group.shares or group.name, []).append(group)
    before: dict[str, str] = {}
    swaps: dict[str, float] = {}
    for members in turns.values():
        ordered = sorted(members, key=lambda group: group.turn)
        before |= {b.name: a.name for a, b in pairwise(ordered)}
        for group in ordered if len(ordered) > 1 else ():
            if group.residency != "resident":
                swaps[group.name] = swap_seconds(state.layouts[group.name])
    named: dict[str, list[str]] = {}
    for work in works:
        named.setdefault(work.group, []).append(work.name)
    return tuple(
        replace(
            work,
            seconds=work.seconds + swaps.get(work.group, 0.0),
            behind=tuple(named.get(before.get(work.group, ""), ())),
        )
        for work in works
    )
