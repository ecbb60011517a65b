"""What a predicted step's time is made of: the work that nothing else can hide.

As the plan says: works that wait for one another. Where it says nothing, what is busy longest: work
on shared cores adds up, divided by the cores; parts on devices of their own overlap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from flowgraph.ir.plan import Plan, WorkerGroup
from flowgraph.passes.words import counted, seconds_text

BACKWARD = ".backward"

NEGLIGIBLE = 1e-3
"""Share of a step that needs no leg of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A task's share of the step. seconds: of the clock. group: who does it; "" for waiting.

    what: which part of the task: `calls of <agent>`, `backward`, or "" for the task itself.
    """

    task: str
    group: str
    seconds: float
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPath:
    """kind: `chain`, `cores` or `part`. at: the group that does most of it, or the node.

    why: in words. legs: in the order in which a step does them; they add up to the step.
    """

    kind: str
    at: str
    why: str
    legs: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        return sum(leg.seconds for leg in self.legs)


def step_path(plan: Plan) -> StepPath:
    """The plan's own path, else the longest of all, completed to the predicted seconds."""
    paths = [_chain(plan)] if plan.prediction.path else [*_crowded(plan), *_parts(plan)]
    if not paths:
        return StepPath(kind="part", at="", why="nothing has to be done", legs=())
    longest = max(paths, key=lambda path: path.seconds)
    rest = plan.prediction.step_seconds - longest.seconds
    if rest <= NEGLIGIBLE * plan.prediction.step_seconds:
        return longest
    waiting = Step(task="waiting for one another", group="", seconds=rest)
    return replace(longest, legs=(*longest.legs, waiting))


def _chain(plan: Plan) -> StepPath:
    legs = []
    tasks = {task.name for task in plan.tasks}
    for leg in plan.prediction.path:
        task, what = leg.work, ""
        if task not in tasks and task.endswith(BACKWARD):
            task, what = task.removesuffix(BACKWARD), BACKWARD[1:]
        elif task not in tasks:
            task, _, agent = task.rpartition("/")
            what = f"calls of {agent}"
        legs.append(Step(task=task, group=leg.group, seconds=leg.seconds, what=what))
    most: dict[str, float] = {}
    for step in legs:
        most[step.group] = most.get(step.group, 0.0) + step.seconds
    return StepPath(
        kind="chain",
        at=max(most, key=lambda group: most[group]),
        why="these wait for one another; each line says by how much it makes the step end later, "
        "and all else is done meanwhile",
        legs=tuple(legs),
    )


def _parts(plan: Plan) -> Iterator[StepPath]:
    for group in plan.groups:
        legs = tuple(_legs(plan, group, plan.prediction.seconds.get(group.name, 0.0)))
        yield StepPath(
            kind="part",
            at=group.name,
            why=f"the slowest part is {group.name}; all others work at the same time and are done "
            "sooner",
            legs=legs,
        )


def _crowded(plan: Plan) -> Iterator[StepPath]:
    """Nodes whose processes share cores."""
    seconds = plan.prediction.seconds
    shared = {n.name: n for n in plan.cluster.nodes if plan.cluster.kind(n.device).kind == "cpu"}
    busy: dict[str, dict[str, int]] = {}
    for group in plan.groups:
        for place in group.places:
            if place.node in shared:
                own = busy.setdefault(place.node, {})
                own[group.name] = own.get(group.name, 0) + 1
    groups = {group.name: group for group in plan.groups}
    for name, own in busy.items():
        cores = shared[name].cores
        work = sum(seconds.get(group, 0.0) * count for group, count in own.items())
        legs = [
            leg
            for group, count in own.items()
            for leg in _legs(plan, groups[group], seconds.get(group, 0.0) * count / cores)
        ]
        many = sum(own.values())
        yield StepPath(
            kind="cores",
            at=name,
            why=f"the {counted(many, 'process', 'processes')} on {name} share "
            f"{counted(cores, 'core')}: {seconds_text(work)} of work for one core are "
            f"{seconds_text(work / cores)} for {cores}",
            legs=tuple(_in_order(plan, legs)),
        )


def _legs(plan: Plan, group: WorkerGroup, seconds: float) -> Iterator[Step]:
    """A group's time by its tasks; equal shares where it has several, for want of better."""
    tasks = tasks_of(plan, group)
    for name in tasks:
        yield Step(task=name, group=group.name, seconds=seconds / len(tasks))


def tasks_of(plan: Plan, group: WorkerGroup) -> tuple[str, ...]:
    """Tasks that the group does, or helps in: an engine answers the calls of tasks that play."""
    if group.kind != "engine":
        return tuple(task.name for task in plan.tasks if task.group == group.name)
    played = {
        stage.name for stage in plan.graph.by_op("episodes") if set(stage.agents) & {*group.agents}
    }
    return tuple(task.name for task in plan.tasks if played & {*task.stages})


def _in_order(plan: Plan, legs: Sequence[Step]) -> list[Step]:
    order = {task.name: i for i, task in enumerate(plan.tasks)}
    return sorted(legs, key=lambda leg: order[leg.task])
