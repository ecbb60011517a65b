"""What follows from a plan alone: who feeds whom, who trains what, what an evaluation needs.

Pure functions of the plan, shared by the orchestrator and the reference executor.
"""

from dataclasses import dataclass
from itertools import pairwise

from flowgraph.ir.graph import Module, Stage
from flowgraph.ir.plan import Plan, Task, WorkerGroup


@dataclass(frozen=True, slots=True)
class Topology:
    """Derived views of one plan."""

    plan: Plan

    def stages(self, task: Task) -> tuple[Stage, ...]:
        return tuple(self.plan.graph.stage(name) for name in task.stages)

    def train_stage(self, task: Task) -> Stage:
        """The `train` stage of a train task."""
        return next(stage for stage in self.stages(task) if stage.op == "train")

    def module_of(self, task: Task) -> Module:
        """The module that an apply or train task runs: the loss's, or the applied one."""
        stage = next(stage for stage in self.stages(task) if stage.op in ("train", "apply"))
        return self.plan.graph.module(stage.modules[0])

    def consumers(self, stream: str) -> tuple[Task, ...]:
        return tuple(task for task in self.plan.tasks if stream in task.inputs)

    def of_kind(self, kind: str) -> tuple[Task, ...]:
        return tuple(task for task in self.plan.tasks if task.kind == kind)

    def trained_by(self, task: Task) -> tuple[str, ...]:
        """Modules that this train task trains: its own first, then encoders."""
        graph = self.plan.graph
        names = self.train_stage(task).modules
        return tuple(name for name in names if graph.module(name).trainable is not False)

    def trained_modules(self) -> tuple[str, ...]:
        names = [name for task in self.of_kind("train") for name in self.trained_by(task)]
        return tuple(dict.fromkeys(names))

    def gradient_source(self, apply: Task) -> Task | None:
        """The train task whose backward reaches this apply task's module, or None."""
        module = self.module_of(apply).name
        for task in self.of_kind("train"):
            reads = set(task.inputs) & set(apply.outputs)
            if reads and module in self.trained_by(task) and module != self.module_of(task).name:
                return task
        return None

    def loss_task(self, module: str) -> Task:
        """The train task whose divisor normalises the module's gradient."""
        return next(task for task in self.of_kind("train") if module in self.trained_by(task))

    def gang(self, module: str) -> WorkerGroup:
        return next(g for g in self.plan.groups if g.kind == "gang" and g.module == module)

    def engines(self, module: str) -> tuple[WorkerGroup, ...]:
        return tuple(g for g in self.plan.groups if g.kind == "engine" and g.module == module)

    def engine_for(self, agent: str) -> WorkerGroup:
        return next(g for g in self.plan.groups if g.kind == "engine" and agent in g.agents)

    def has_filters(self) -> bool:
        return any(not task.gated for task in self.plan.tasks)

    def variants(self) -> tuple[Stage, ...]:
        """Evaluate stages; variant i is the i-th of them, counted from 1."""
        return self.plan.graph.by_op("evaluate")

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

    def outputs_for(self, task: Task, variant: int) -> tuple[str, ...]:
        """Streams of the task that somebody reads in a step of this variant."""
        readers = self.tasks_for(variant)
        return tuple(s for s in task.outputs if any(s in reader.inputs for reader in readers))

    def unit_samples(self, exact: bool) -> int:
        """Source samples a unit."""
        return self.plan.schedule.chunk if exact else self.plan.schedule.unit

    def inner_streams(self, task: Task) -> tuple[tuple[str, str], ...]:
        """(stream, consumer) pairs inside the task, which never cross a border."""
        stages = self.stages(task)
        made = {stream for stage in stages for stream in stage.outputs}
        return tuple(
            (stream, stage.name) for stage in stages for stream in stage.inputs if stream in made
        )

    def border_streams(self, task: Task) -> tuple[tuple[str, str], ...]:
        """(stream, consumer) pairs by which the task reads others' outputs."""
        stages = self.stages(task)
        return tuple((s, stage.name) for stage in stages for s in stage.inputs if s in task.inputs)


def split_units(samples: tuple[int, ...], unit: int) -> tuple[tuple[int, ...], ...]:
    """Contiguous units of a membership; the last may be smaller."""
    return tuple(samples[i : i + unit] for i in range(0, len(samples), unit))


def part_ranges(units: int, updates: int) -> tuple[range, ...]:
    """Contiguous, nearly equal runs of units, one an optimizer update."""
    edges = [units * part // updates for part in range(updates + 1)]
    return tuple(range(a, b) for a, b in pairwise(edges))
