"""What follows from a plan alone: who feeds whom, who trains what, what an evaluation needs.

Pure functions of the plan, shared by the orchestrator and the reference executor; each answer is
kept, since a run asks the same questions at every event.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import pairwise
from typing import Any, TypeVar

from flowgraph.ir.graph import Module, Stage
from flowgraph.ir.plan import Plan, Task, WorkerGroup
from flowgraph.runtime.cut import Cut
from flowgraph.runtime.reads import columns_read

F = TypeVar("F", bound=Callable[..., Any])


def _kept(method: F) -> F:
    """The answer of each question that is asked of a Topology, found once."""
    name = method.__name__

    @wraps(method)
    def answer(self: "Topology", *question: Any) -> Any:
        key = (name, *question)
        try:
            return self._answers[key]
        except KeyError:
            found = self._answers[key] = method(self, *question)
            return found

    return answer  # type: ignore[return-value]  # same signature, by *question


@dataclass(frozen=True, slots=True)
class Topology:
    """Derived views of one plan."""

    plan: Plan
    _answers: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @_kept
    def stages(self, task: Task) -> tuple[Stage, ...]:
        return tuple(self.plan.graph.stage(name) for name in task.stages)

    @_kept
    def train_stage(self, task: Task) -> Stage:
        """The `train` stage of a train task."""
        return next(stage for stage in self.stages(task) if stage.op == "train")

    @_kept
    def module_of(self, task: Task) -> Module:
        """The module that an apply or train task runs: the loss's, or the applied one."""
        stage = next(stage for stage in self.stages(task) if stage.op in ("train", "apply"))
        return self.plan.graph.module(stage.modules[0])

    @_kept
    def consumers(self, stream: str) -> tuple[Task, ...]:
        return tuple(task for task in self.plan.tasks if stream in task.inputs)

    @_kept
    def of_kind(self, kind: str) -> tuple[Task, ...]:
        return tuple(task for task in self.plan.tasks if task.kind == kind)

    @_kept
    def trained_by(self, task: Task) -> tuple[str, ...]:
        """Modules that this train task trains: its own first, then encoders."""
        graph = self.plan.graph
        names = self.train_stage(task).modules
        return tuple(name for name in names if graph.module(name).trainable is not False)

    @_kept
    def trained_modules(self) -> tuple[str, ...]:
        names = [name for task in self.of_kind("train") for name in self.trained_by(task)]
        return tuple(dict.fromkeys(names))

    @_kept
    def gradient_source(self, apply: Task) -> Task | None:
        """The train task whose backward reaches this apply task's module, or None."""
        module = self.module_of(apply).name
        for task in self.of_kind("train"):
            reads = set(task.inputs) & set(apply.outputs)
            if reads and module in self.trained_by(task) and module != self.module_of(task).name:
                return task
        return None

    @_kept
    def loss_task(self, module: str) -> Task:
        """The train task whose divisor normalises the module's gradient."""
        return next(task for task in self.of_kind("train") if module in self.trained_by(task))

    @_kept
    def gang(self, module: str) -> WorkerGroup:
        return next(g for g in self.plan.groups if g.kind == "gang" and g.module == module)

    @_kept
    def engines(self, module: str) -> tuple[WorkerGroup, ...]:
        return tuple(g for g in self.plan.groups if g.kind == "engine" and g.module == module)

    @_kept
    def engine_for(self, agent: str) -> WorkerGroup:
        return next(g for g in self.plan.groups if g.kind == "engine" and agent in g.agents)

    @_kept
    def has_filters(self) -> bool:
        return any(not task.gated for task in self.plan.tasks)

    @_kept
    def gate(self) -> Task | None:
        """The task of the source and its filters, when there are filters."""
        return next((task for task in self.plan.tasks if not task.gated), None)

    @_kept
    def variants(self) -> tuple[Stage, ...]:
        """Evaluate stages; variant i is the i-th of them, counted from 1."""
        return self.plan.graph.by_op("evaluate")

    @_kept
    def tasks_for(self, variant: int) -> tuple[Task, ...]:
        """Tasks that run in a step of this variant, in order; all of them when training."""
        if variant == 0:
            return self.plan.tasks
        of = str(self.variants()[variant - 1].attributes["of"])
        target = next(task for task in self.plan.tasks if of in task.stages)
        wanted = {target.name}
        for task in reversed(self.plan.tasks):
            feeds = {
                stream
                for other in self.plan.tasks
                if other.name in wanted
                for stream in other.inputs
            }
            if feeds & set(task.outputs):
                wanted.add(task.name)
        return tuple(task for task in self.plan.tasks if task.name in wanted)

    @_kept
    def outputs_for(self, task: Task, variant: int) -> tuple[str, ...]:
        """Streams of the task that somebody reads in a step of this variant."""
        readers = self.tasks_for(variant)
        return tuple(s for s in task.outputs if any(s in reader.inputs for reader in readers))

    @_kept
    def columns(self, stream: str) -> tuple[str, ...]:
        """Columns of the stream that are kept and sent: those that some task can read."""
        return columns_read(self.plan, stream)

    @_kept
    def unit_samples(self, exact: bool) -> int:
        """Source samples a unit."""
        return self.plan.schedule.chunk if exact else self.plan.schedule.unit

    @_kept
    def inner_streams(self, task: Task) -> tuple[tuple[str, str], ...]:
        """(stream, consumer) pairs inside the task, which never cross a border."""
        stages = self.stages(task)
        made = {stream for stage in stages for stream in stage.outputs}
        return tuple(
            (stream, stage.name) for stage in stages for stream in stage.inputs if stream in made
        )

    @_kept
    def border_streams(self, task: Task) -> tuple[tuple[str, str], ...]:
        """(stream, consumer) pairs by which the task reads others' outputs."""
        stages = self.stages(task)
        return tuple((s, stage.name) for stage in stages for s in stage.inputs if s in task.inputs)

    def scope(self, task: Task, variant: int, name: str) -> tuple[str, str]:
        """Whose metric it is: a module's (losses, its agents' rewards), or the stage's own."""
        if variant:
            return self.variants()[variant - 1].name, name
        if name.startswith("reward/"):
            return self.plan.graph.agent(name.removeprefix("reward/")).module, "reward"
        if task.kind in ("train", "apply"):
            return self.module_of(task).name, name
        return task.name, name


def split_units(samples: Sequence[int], unit: int) -> tuple[tuple[int, ...], ...]:
    """Contiguous units of a membership; the last may be smaller."""
    return tuple(tuple(samples[i : i + unit]) for i in range(0, len(samples), unit))


Units = Sequence[tuple[int, ...]]


def divide(samples: Sequence[int], unit: int, updates: int) -> tuple[Units, tuple[range, ...]]:
    """A membership as units, and the runs of units that make one optimizer update each.

    Parts are contiguous and nearly equal in samples; no unit crosses from one to the next.
    """
    edges = [len(samples) * part // updates for part in range(updates + 1)]
    counts = [-(-(b - a) // unit) for a, b in pairwise(edges)]
    marks = [sum(counts[:part]) for part in range(updates + 1)]
    parts = tuple(range(a, b) for a, b in pairwise(marks))
    if not any(edge % unit for edge in edges[:-1]):
        return Cut(samples, unit), parts
    divided = [split_units(samples[a:b], unit) for a, b in pairwise(edges)]
    return tuple(unit for units in divided for unit in units), parts


def evaluation_due(stage: Stage, step: int, total: int) -> bool:
    """Whether the evaluation looks at the weights before step `step` (`total`: the last ones)."""
    if step == total:
        return True
    if step == 0:
        return bool(stage.attributes.get("at_start", True))
    every = int(stage.attributes.get("every", 0))
    return every > 0 and step % every == 0


def fill_micro_batches(sizes: list[int], budget: int) -> list[list[int]]:
    """Runs of consecutive units whose tokens fit the budget; one that alone does not goes alone."""
    batches: list[list[int]] = []
    tokens = 0
    for unit, size in enumerate(sizes):
        if batches and tokens + size <= budget:
            batches[-1].append(unit)
            tokens += size
        else:
            batches.append([unit])
            tokens = size
    return batches
