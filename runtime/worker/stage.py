"""A stage worker: runs the user's functions, many items at a time on one event loop."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.calls import call_to_plain, completion_from_plain
from flowgraph.runtime.loose import Made
from flowgraph.runtime.messages import (
    Answers,
    Done,
    Fetching,
    Free,
    Issued,
    Message,
    Ready,
    Recall,
    Run,
    Stop,
    Stopped,
)
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.faults import in_variant
from flowgraph.runtime.stages.host import HostResult, HostTask
from flowgraph.runtime.stages.pump import TurnLoop, run_ready
from flowgraph.runtime.stages.retries import tried
from flowgraph.runtime.worker.arrivals import Arrivals, Handed
from flowgraph.runtime.worker.grace import Grace
from flowgraph.runtime.worker.items import item_of
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import store_of
from flowgraph.runtime.worker.room import Room, RunOver
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
        self._room = Room(spec.name, link, self._store, Grace(self._goes_on))
        self._arrivals = Arrivals(self._store.remote, grace=Grace(self._goes_on))
        self._tasks = {
            task.name: HostTask(plan, task, exact=spec.exact, seed=plan.graph.seed)
            for task in plan.tasks
            if task.group == spec.group
        }
        self._variants = 1 + len(plan.graph.by_op("evaluate"))
        self._late: list[Handed] = []  # handed over, not begun
        self._running: dict[int, tuple[Run, Handed]] = {}
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
        while self.turn(self._link.receive(0 if self.pending else self.timeout_ms())):
            pass

    def begin(self, pid: int) -> None:
        """Say that work can come."""
        if self._store.remote is not None:
            self._link.also_wake_on(self._store.remote.fileno())
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
                return self._stop()
            self._take(message)
        try:
            self._start_late()
            self._turn()
            while self._start_late():  # what has ended left room
                self._turn()
        except RunOver:
            return self._stop()
        self._tell_of_waiting()
        self._room.look()
        return True

    def _stop(self) -> bool:
        self._link.send(Stopped(worker=self._spec.name, digest="", initial_digest=""))
        return False

    def abandon(self) -> None:
        """End the user's coroutines and the loop, where the worker has no process to end with."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        run_ready(self._loop)
        self._loop.close()

    def timeout_ms(self) -> int:
        """How long nothing is to be done unless something comes; -1: for ever."""
        asked = (self._loop.wake_in(), self._arrivals.wake_in(), self._room.wake_in())
        wakes = [seconds for seconds in asked if seconds is not None]
        return math.ceil(min(wakes) * 1000.0) if wakes else -1

    def _goes_on(self) -> bool:
        """Whether coroutines of the user's are left that are no item's, and get their turn."""
        return not self._running and bool(asyncio.all_tasks(self._loop))

    def _take(self, message: Message) -> None:
        match message:
            case Run():
                self._late.append(self._arrivals.hand(message))
            case Answers():
                for plain in message.completions:
                    self._port.complete(completion_from_plain(plain))
            case Free():
                self._store.free(message)
            case Recall():
                self._room.recall()
            case _:
                raise InternalError(f"a stage worker was sent a {type(message).__name__}")

    def _start_late(self) -> bool:
        """Start what was handed over, once its blocks are here. Whether there was any."""
        self._arrivals.look()
        late, self._late = self._late, []
        for handed in late:
            if self._arrivals.is_here(handed):
                self._start(handed)
            else:
                self._late.append(handed)
        return len(self._late) < len(late)

    def _tell_of_waiting(self) -> None:
        news = self._arrivals.news()
        if news is not None:
            items, porters = news
            self._link.send(Fetching(worker=self._spec.name, items=items, porters=porters))

    def _start(self, handed: Handed) -> None:
        run = handed.order
        assert isinstance(run, Run)
        item = item_of(run, self._store)
        self._arrivals.begun(handed)
        self._running[run.item] = run, handed
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
            run, handed = self._running.pop(item)
            self._finish(run)
            self._arrivals.ended(handed)

    def _finish(self, run: Run) -> None:
        began = time.perf_counter()
        with in_variant(run.variant):
            result = self._results.pop(run.item).result()  # raises what the user's code raised
        wanted = {stream: result.made[stream] for stream in run.outputs}
        handles = {
            stream: tuple(self._store.write(batch, stream, self._wait) for batch in batches)
            for stream, batches in wanted.items()
        }
        sizes = {stream: tuple(map(tokens_of, batches)) for stream, batches in wanted.items()}
        metrics, kept, dropped = result.metrics, tuple(result.kept), tuple(result.dropped)
        del result, wanted  # what looks at the item's blocks from here on is not ours
        held = self._store.leases.end(run.item)
        self._busy_s += time.perf_counter() - began
        done = Done(
            worker=self._spec.name,
            item=run.item,
            outputs=handles,
            sizes=sizes,
            weights=(),
            metrics=metrics,
            kept=kept,
            dropped=dropped,
            tokens=0,
            busy_s=self._busy_s,
            held=held,
        )
        self._busy_s = 0.0
        self._link.send(done)

    def _wait(self, stream: str, nbytes: int) -> None:
        """Room in the pool comes with `Free`; everything else keeps its order."""
        self._room.wait(stream, nbytes, self._put_off)

    def _put_off(self, messages: list[Message]) -> None:
        self._arrivals.look()
        self._waiting += messages


def tokens_of(batch: Made) -> int:
    """What a unit's rows weigh in a micro-batch: their tokens, or their number without any."""
    tokens = batch.columns.get("tokens")
    return batch.rows if tokens is None else tokens.shape[0]
