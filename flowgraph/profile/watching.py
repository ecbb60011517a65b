"""The reference executor with a stopwatch: what each part takes, and what the data turn out to be.

It runs the same executors as a run's workers, one after another, so that each has the core for
itself. The first step warms up and is not counted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from flowgraph.ir.index import agent_of, index
from flowgraph.ir.plan import Plan, Task
from flowgraph.passes.infer_rates import inferred
from flowgraph.profile.samples import Line, Samples
from flowgraph.runtime.engine.interface import Call, Completion
from flowgraph.runtime.item import Item
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.policy.roofline import SAMPLE_TOKENS
from flowgraph.runtime.reference.executor import Reference
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.host import HostResult


def now() -> float:
    """Seconds of a clock, once the accelerator has done all it was given: launches return early."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.perf_counter()


class WatchedRank:
    """A rank whose forward and backward are timed; all else is the rank's own."""

    def __init__(self, rank: Any, watch: "Watched") -> None:
        self._rank = rank
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def train(self, task: str, item: Item) -> Any:
        return self._timed("train", task, item, lambda: self._rank.train(task, item))

    def apply(self, task: str, item: Item) -> Any:
        return self._timed("apply", task, item, lambda: self._rank.apply(task, item))

    def backward(self, task: str, item_id: int, units: Sequence[int], gradients: Any) -> None:
        began = now()
        self._rank.backward(task, item_id, units, gradients)
        self._watch.behind(task, item_id, now() - began)

    def _timed(self, what: str, task: str, item: Item, work: Any) -> Any:
        began = now()
        result = work()
        if item.variant == 0 and self._watch.counting:
            self._watch.worked(what, task, item, now() - began)
        return result


class HeardPort(CallPort):
    """A port that tells of each call on its way out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, watch: "Watched") -> None:
        super().__init__(loop)
        self._watch = watch

    def drain(self) -> list[tuple[str, Call]]:
        calls = super().drain()
        for agent, call in calls:
            self._watch.asked(agent, call)
        return calls


class Watched(Reference):
    """One process that runs the graph's first steps and remembers what they took."""

    def __init__(self, plan: Plan, options: RunOptions, directory: RunDirectory) -> None:
        super().__init__(plan, options, lambda _: None, directory)
        self.counting = False
        self.host_sample = Samples()
        self.kept = Samples()
        self.gangs = {name: Line(("token_s", "item_s")) for name in self._ranks}
        self.calls = {agent.name: Samples() for agent in plan.graph.agents}
        self.prompts = {agent.name: Samples() for agent in plan.graph.agents}
        self.responses = {agent.name: Samples() for agent in plan.graph.agents}
        self.items = {stage.name: Samples() for stage in plan.graph.by_op("unnest")}
        self._lengths = inferred(index(plan.graph)).tokens
        self._port = HeardPort(self._loop, self)
        self._agents: dict[int, str] = {}
        self._applied: dict[int, tuple[str, float, float]] = {}
        self._engine_seconds = 0.0
        self._ranks = {
            name: WatchedRank(rank, self)  # type: ignore[misc]
            for name, rank in self._ranks.items()
        }

    def one_step(self, step: int) -> bool:
        """Run a step; False when the source has none left."""
        samples = self._membership()
        if samples:
            self._train(step, samples)
        return bool(samples)

    def host(self, work: list[tuple[Task, Item]]) -> list[HostResult]:
        began, before = time.perf_counter(), self._engine_seconds
        results = super().host(work)
        seconds = time.perf_counter() - began - (self._engine_seconds - before)
        samples = sum(len(unit) for _, item in work for unit in item.samples)
        if self.counting and samples:
            self.host_sample.add(seconds / samples)
            for (task, item), result in zip(work, results, strict=True):
                self._data(task, item, result)
        for (task, item), result in zip(work, results, strict=True):
            if not task.gated:
                kept = set(result.kept)
                for sample in (sample for unit in item.samples for sample in unit):
                    self.kept.add(float(sample in kept))
        return results

    def _advance(self) -> list[Completion]:
        began = now()
        done = super()._advance()
        self._engine_seconds += now() - began
        if self.counting:
            for completion in done:
                self.responses[self._agents[completion.id]].add(len(completion.tokens))
        return done

    def asked(self, agent: str, call: Call) -> None:
        """A call was issued."""
        self._agents[call.id] = agent
        if self.counting:
            self.prompts[agent].add(len(call.prompt))

    def worked(self, what: str, task: str, item: Item, seconds: float) -> None:
        """A rank trained an item, or ran its forward, whose backward may follow."""
        module = self.topology.module_of(self.plan.task(task)).name
        amount = self._tokens(self.plan.task(task), item)
        if what == "train" or self.topology.gradient_source(self.plan.task(task)) is None:
            self.gangs[module].add(seconds, amount, 1.0)
        else:
            self._applied[item.id] = (module, seconds, amount)

    def behind(self, task: str, item_id: int, seconds: float) -> None:
        """The backward of an item whose forward was seen."""
        if (found := self._applied.pop(item_id, None)) is not None:
            module, forward, amount = found
            self.gangs[module].add(forward + seconds, amount, 1.0)

    def _tokens(self, task: Task, item: Item) -> float:
        """What the passes count by: tokens, or for records without what they take one for."""
        stream = task.inputs[0]
        a_record = self._lengths.get(stream) or float(SAMPLE_TOKENS)
        return sum(
            len(batch["tokens"].values) if "tokens" in batch.columns else batch.rows * a_record
            for batch in item.inputs[stream]
        )

    def _data(self, task: Task, item: Item, result: HostResult) -> None:
        """Calls a trajectory and items a sample, from the rows that were made."""
        graph = self.plan.graph
        tries = {a: s.attributes["trajectories"] for s in graph.by_op("episodes") for a in s.agents}
        samples = sum(map(len, item.samples))
        for stream, batches in result.outputs.items():
            maker = graph.stage(graph.stream(stream).producer)
            rows = sum(batch.rows for batch in batches)
            if maker.op == "unnest":
                self.items[maker.name].add(rows / samples)
            agent = _whose(self.plan, stream)
            if not agent:
                continue
            played: Counter[tuple[int, int]] = Counter()
            for batch in batches:
                own = (batch["sample"].values, batch["trajectory"].values)
                played.update(zip(*(np.asarray(ids).tolist() for ids in own), strict=True))
            for count in played.values():
                self.calls[agent].add(count)
            for _ in range(samples * tries[agent] - len(played)):
                self.calls[agent].add(0)


def _whose(plan: Plan, stream: str) -> str:
    """The agent whose calls the stream's records are, or ""."""
    graph = plan.graph
    while True:
        stage = graph.stage(graph.stream(stream).producer)
        if stage.op == "episodes":
            return agent_of(stage, stream)
        if stage.op not in ("map", "group") or not stage.inputs:
            return ""
        stream = stage.inputs[0]
