"""A stage worker: runs the user's functions, many items at a time on one event loop."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

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
from flowgraph.runtime.stages.faults import in_variant
from flowgraph.runtime.stages.host import HostResult, HostTask
from flowgraph.runtime.stages.pump import TurnLoop, run_ready
from flowgraph.runtime.stages.retries import tried
from flowgraph.runtime.worker.items import blocks_of, item_of
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import store_of
from flowgraph.runtime.worker.spec import WorkerSpec


def run_stage(spec: WorkerSpec, plan: Plan, link: Line, pid: int) -> None:
    """Serve until `Stop`."""
    StageWorker(spec, plan, link).serve(pid)


class StageWorker:
    """Turns: messages in, the loop as far as it can go, calls and finished items out."""

    def __init__(self, spec: WorkerSpec, plan: Plan, link: Line) -> None:
        self._spec = spec
        self._link = link
        self._loop = TurnLoop()
        self._port = CallPort(self._loop)
        self._store = store_of(spec, plan)
        self._tasks = {
            task.name: HostTask(plan, task, exact=spec.exact, seed=plan.graph.seed)
            for task in plan.tasks
            if task.group == spec.group
        }
        self._variants = 1 + len(plan.graph.by_op("evaluate"))
        self._late: deque[Run] = deque()  # handed over, not begun
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
        self.begin(pid)
        while self.turn(self._link.receive(0 if self.pending else self._timeout_ms())):
            pass

    def begin(self, pid: int) -> None:
        """Say that work can come."""
        self._link.send(Ready(worker=self._spec.name, pid=pid, sizes=self.sizes()))

    @property
    def pending(self) -> bool:
        """Whether messages were put off while there was no room."""
        return bool(self._waiting)

    def turn(self, messages: Sequence[Message]) -> bool:
        """Take the messages, then let the user's code go as far as it can. False: stopped."""
        before, self._waiting = self._waiting, []
        for message in (*before, *messages):
            if isinstance(message, Stop):
                last = Stopped(worker=self._spec.name, digest="", initial_digest="")
                self._link.send(last)
                return False
            self._take(message)
        self._turn()
        while self._start_late():  # what has ended left room
            self._turn()
        return True

    def abandon(self) -> None:
        """End the user's coroutines and the loop, where the worker has no process to end with."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        run_ready(self._loop)
        self._loop.close()

    def _timeout_ms(self) -> int:
        wake = self._loop.wake_in()
        return -1 if wake is None else math.ceil(wake * 1000.0)

    def _take(self, message: Message) -> None:
        match message:
            case Run():
                self._late.append(message)
                self._start_late()
            case Answers():
                for plain in message.completions:
                    self._port.complete(completion_from_plain(plain))
            case Free():
                self._store.free(message)
            case _:
                raise InternalError(f"a stage worker was sent a {type(message).__name__}")

    def _start_late(self) -> bool:
        """Start what was handed over, in order, while other nodes' records find room here.

        With nothing under way it starts whatever its size: the bound is the budget and one item.
        Whether there was anything to start.
        """
        before = len(self._late)
        while self._late and (not self._running or self._store.fits(blocks_of(self._late[0]))):
            self._start(self._late.popleft())
        return len(self._late) < before

    def _start(self, run: Run) -> None:
        item = item_of(run, self._store)
        self._running[run.item] = run
        work = partial(self._tasks[run.task].run, item, self._port)
        task = self._loop.create_task(tried(work, self._spec.retries))
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
        with in_variant(run.variant):
            result = self._results.pop(run.item).result()  # raises what the user's code raised
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
