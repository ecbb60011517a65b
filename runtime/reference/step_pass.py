"""One step of the reference executor: units through tasks in order, nothing overlapped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flowgraph.ir.plan import Task
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.item import Item
from flowgraph.runtime.loose import joined
from flowgraph.runtime.topology import divide, fill_micro_batches
from flowgraph.runtime.worker.gang import figures_of
from flowgraph.runtime.worker.stage import tokens_of

if TYPE_CHECKING:
    from flowgraph.runtime.reference.executor import Reference

Metrics = dict[tuple[str, str], list[float]]


class Pass:
    """One step's samples on their way through the tasks, part by part."""

    def __init__(self, run: Reference, variant: int, step: int, samples: tuple[int, ...]) -> None:
        self._run = run
        self._variant = variant
        self._step = step
        updates = run.plan.schedule.updates if variant == 0 else 1
        self.units, self.parts = divide(samples, run.topology.unit_samples(run.exact), updates)
        self._made: dict[str, dict[int, Batch]] = {}
        self._done: dict[str, set[int]] = {}
        self._applied: dict[str, list[Item]] = {}
        self._gradients: dict[str, dict[int, Batch]] = {}
        self.weights: dict[str, dict[int, float]] = {}
        self.owned: dict[str, set[int]] = {}
        self.metrics: Metrics = {}
        self.tokens = 0

    def part(self, part: int) -> None:
        """Run every task on the units of this part; host tasks on all that are ready."""
        for task in self._run.topology.tasks_for(self._variant):
            done = self._done.setdefault(task.name, set())
            scope: Iterable[int] = self.parts[part]
            if task.kind == "host":
                scope = range(len(self.units))
            units = [u for u in scope if u not in done and self._ready(task, u)]
            done.update(units)
            match task.kind:
                case "host":
                    self._host(task, units)
                case "apply":
                    self._apply(task, part, units)
                case "train":
                    self._train(task, part, units)
        for name, items in self._applied.items():
            self._backward(self._run.plan.task(name), items)
        self._applied = {}

    def _ready(self, task: Task, unit: int) -> bool:
        return all(unit in self._made.get(stream, {}) for stream in task.inputs)

    def _item(self, task: Task, part: int, units: list[int]) -> Item:
        inputs = {s: tuple(self._made[s][unit] for unit in units) for s in task.inputs}
        samples = tuple(self.units[unit] for unit in units)
        return self._run.item(task, self._variant, self._step, part, tuple(units), samples, inputs)

    def _host(self, task: Task, units: list[int]) -> None:
        items = [self._item(task, 0, [unit]) for unit in units]
        results = self._run.host([(task, item) for item in items])
        for unit, item, result in zip(units, items, results, strict=True):
            for stream in self._run.topology.outputs_for(task, self._variant):
                self._made.setdefault(stream, {})[unit] = joined(result.made[stream][0])
            self._count(task, item, len({sample for sample, _ in result.dropped}))
            for name, (total, count) in result.metrics.items():
                self.add(self._run.topology.scope(task, self._variant, name), total, count)

    def _apply(self, task: Task, part: int, units: list[int]) -> None:
        for unit in units:
            item = self._item(task, part, [unit])
            for stream, batches in self._run.rank(task).apply(task.name, item).items():
                self._made.setdefault(stream, {})[unit] = batches[0]
            self._count(task, item, 0)
            if self._variant == 0 and self._run.topology.gradient_source(task):
                self._applied.setdefault(task.name, []).append(item)

    def _train(self, task: Task, part: int, units: list[int]) -> None:
        batches = [[unit] for unit in units]
        if not self._run.exact:
            budget = int(self._run.topology.train_stage(task).attributes["micro_batch"])
            sizes = [tokens_of(self._made[task.inputs[0]][unit]) for unit in units]
            batches = [[units[i] for i in places] for places in fill_micro_batches(sizes, budget)]
        for batch in batches:
            self._train_item(task, self._item(task, part, batch))

    def _train_item(self, task: Task, item: Item) -> None:
        rank = self._run.rank(task)
        module = self._run.topology.module_of(task).name
        if self._variant:
            for name, (total, count) in rank.evaluate(task.name, item).items():
                self.add(self._run.topology.scope(task, self._variant, name), total, count)
            return
        result = rank.train(task.name, item)
        self._run.keep(module, item)
        self._count(task, item, 0)
        self.owned.setdefault(module, set()).update(item.units)
        self.weights.setdefault(task.name, {}).update(result.weights)
        self.tokens += int(result.sums["tokens"])
        for name, (total, count) in figures_of(result).items():
            self.add((module, name), total, count)
        for stream, batches in result.gradients.items():
            held = self._gradients.setdefault(self._run.plan.producer(stream).name, {})
            held.update(zip(item.units, batches, strict=True))

    def _backward(self, task: Task, items: list[Item]) -> None:
        rank = self._run.rank(task)
        module = self._run.topology.module_of(task).name
        for item in items:
            gradients = [self._gradients[task.name].pop(unit) for unit in item.units]
            rank.backward(task.name, item.id, item.units, gradients)
            self.owned.setdefault(module, set()).update(item.units)

    def _count(self, task: Task, item: Item, dropped: int) -> None:
        if self._variant:
            return
        samples = sum(map(len, item.samples))
        topology, run = self._run.topology, self._run
        for stream, consumer in (*topology.inner_streams(task), *topology.border_streams(task)):
            seen, lost = samples, dropped
            if not task.gated:
                seen = run.seen_until(item.samples[-1][-1])
                lost = seen - samples if run.plan.graph.stage(consumer).op == "filter" else 0
            record = run.record(stream, consumer)
            record.admitted += seen
            record.dropped += lost
            record.consumed += seen - lost
        if not task.gated:
            run.gate_recorded = item.samples[-1][-1] + 1

    def add(self, where: tuple[str, str], total: float, count: float) -> None:
        sums = self.metrics.setdefault(where, [0.0, 0.0])
        sums[0] += total
        sums[1] += count

    def means(self) -> dict[str, dict[str, float]]:
        """Metrics by scope and name, each sum divided by its count."""
        result: dict[str, dict[str, float]] = {}
        for (scope, name), (total, count) in sorted(self.metrics.items()):
            if count:
                result.setdefault(scope, {})[name] = total / count
        return result
