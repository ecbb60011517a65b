"""A stage worker: runs the user's functions, many items at a time on one event loop."""

import asyncio
import math
import time
from collections.abc import Mapping

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.calls import call_to_plain, completion_from_plain
from flowgraph.runtime.messages import (
    Answers,
    Done,
    Free,
    Issued,
    Message,
    Ready,
    Run,
    Stop,
    Stopped,
)
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.host import HostResult, HostTask
from flowgraph.runtime.stages.pump import TurnLoop, run_ready
from flowgraph.runtime.worker.items import item_of
from flowgraph.runtime.worker.link import Link
from flowgraph.runtime.worker.output import Store
from flowgraph.runtime.worker.spec import WorkerSpec


def run_stage(spec: WorkerSpec, plan: Plan, link: Link, pid: int) -> None:
    """Serve until `Stop`."""
    StageWorker(spec, plan, link).serve(pid)


class StageWorker:
    """Turns: messages in, the loop as far as it can go, calls and finished items out."""

    def __init__(self, spec: WorkerSpec, plan: Plan, link: Link) -> None:
        self._spec = spec
        self._link = link
        self._loop = TurnLoop()
        self._port = CallPort(self._loop)
        self._store = Store(spec.name, plan.pool_bytes)
        self._tasks = {
            task.name: HostTask(plan, task, exact=spec.exact, seed=plan.graph.seed)
            for task in plan.tasks
            if task.group == spec.group
        }
        self._variants = 1 + len(plan.graph.by_op("evaluate"))
        self._running: dict[int, Run] = {}
        self._finished: list[int] = []
        self._results: dict[int, asyncio.Task[HostResult]] = {}
        self._waiting: list[Message] = []
        self._busy_s = 0.0

    def sizes(self) -> Mapping[str, int]:
        """Samples of each variant's source, by variant."""
        found: dict[str, int] = {}
        for task in self._tasks.values():
            for variant in range(self._variants):
                size = task.source_size(variant)
                if size is not None:
                    found[str(variant)] = size
        return found

    def serve(self, pid: int) -> None:
        self._link.also_wake_on(self._loop.fileno())
        self._link.send(Ready(worker=self._spec.name, pid=pid, sizes=self.sizes()))
        while True:
            messages = self._waiting or self._link.receive(self._timeout_ms())
            self._waiting = []
            for message in messages:
                if isinstance(message, Stop):
                    last = Stopped(worker=self._spec.name, digest="", initial_digest="")
                    self._link.send(last)
                    return
                self._take(message)
            self._turn()

    def _timeout_ms(self) -> int:
        wake = self._loop.wake_in()
        return -1 if wake is None else math.ceil(wake * 1000.0)

    def _take(self, message: Message) -> None:
        match message:
            case Run():
                self._start(message)
            case Answers():
                for plain in message.completions:
                    self._port.complete(completion_from_plain(plain))
            case Free():
                self._store.free(message)
            case _:
                raise InternalError(f"a stage worker was sent a {type(message).__name__}")

    def _start(self, run: Run) -> None:
        item = item_of(run, self._store)
        self._running[run.item] = run
        task = self._loop.create_task(self._tasks[run.task].run(item, self._port))
        task.add_done_callback(lambda _: self._finished.append(run.item))
        self._results[run.item] = task

    def _turn(self) -> None:
        began = time.perf_counter()
        run_ready(self._loop)
        self._busy_s += time.perf_counter() - began
        by_agent: dict[str, list[tuple[object, ...]]] = {}
        for agent, call in self._port.drain():
            by_agent.setdefault(agent, []).append(call_to_plain(call))
        for agent, calls in by_agent.items():
            self._link.send(Issued(worker=self._spec.name, agent=agent, calls=tuple(calls)))
        finished, self._finished = self._finished, []
        for item in finished:
            self._finish(self._running.pop(item))

    def _finish(self, run: Run) -> None:
        began = time.perf_counter()
        result = self._results.pop(run.item).result()  # raises what the user's function raised
        wanted = {stream: result.outputs[stream] for stream in run.outputs}
        handles = {
            stream: tuple(self._store.write(batch, stream, self._wait) for batch in batches)
            for stream, batches in wanted.items()
        }
        self._busy_s += time.perf_counter() - began
        done = Done(
            worker=self._spec.name,
            item=run.item,
            outputs=handles,
            sizes={s: tuple(map(tokens_of, batches)) for s, batches in wanted.items()},
            weights=(),
            metrics=result.metrics,
            kept=tuple(result.kept),
            dropped=tuple(result.dropped),
            tokens=0,
            busy_s=self._busy_s,
        )
        self._busy_s = 0.0
        self._link.send(done)

    def _wait(self) -> None:
        """Room in the pool comes with `Free`; everything else keeps its order."""
        for message in self._link.receive(-1):
            if isinstance(message, Free):
                self._store.free(message)
            else:
                self._waiting.append(message)


def tokens_of(batch: Batch) -> int:
    """What a unit's rows weigh in a micro-batch: their tokens, or their number without any."""
    tokens = batch.columns.get("tokens")
    return batch.rows if tokens is None else int(tokens.values.shape[0])
