"""A gang worker: one rank of a module; forward, backward, training items, updates."""

import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from torch._C._distributed_c10d import FileStore

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import CannotWrite
from flowgraph.runtime.messages import (
    Backward,
    BackwardDone,
    Done,
    Fetching,
    Free,
    Message,
    PlainHandle,
    Ready,
    Recall,
    Run,
    Save,
    Saved,
    Stop,
    Stopped,
    Update,
    Updated,
)
from flowgraph.runtime.stages.faults import in_variant
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer.collective import Alone, Collective, Gloo
from flowgraph.runtime.trainer.interface import Sums, TrainResult, UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from flowgraph.runtime.worker.arrivals import Arrivals, Handed
from flowgraph.runtime.worker.items import item_of
from flowgraph.runtime.worker.leases import name_of
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import flat_batch, store_of
from flowgraph.runtime.worker.recording import Recorder
from flowgraph.runtime.worker.room import Room
from flowgraph.runtime.worker.spec import WorkerSpec


def run_gang(spec: WorkerSpec, plan: Plan, link: Line, pid: int) -> None:
    """Serve until `Stop`."""
    GangWorker(spec, plan, link).serve(pid)


def _collective(spec: WorkerSpec, world: int) -> Collective:
    if world == 1:
        return Alone()
    store = FileStore(f"{spec.scratch}/{spec.group}", world)
    return Gloo(store, rank=spec.index, world=world)


class GangWorker:
    """Takes messages in order, except that work may begin before other work whose blocks are not
    here yet; while its pool is full it still takes `Free`.
    """

    def __init__(self, spec: WorkerSpec, plan: Plan, link: Line) -> None:
        group = plan.group(spec.group)
        self._spec = spec
        self._plan = plan
        self._link = link
        self._rank = Rank(
            plan,
            group.module,
            rank=spec.index,
            world=group.replicas,
            steps=spec.steps,
            exact=spec.exact,
            seed=plan.graph.seed,
            collective=_collective(spec, group.replicas),
        )
        if spec.restore:
            self._rank.load_state(spec.restore)
        self._store = store_of(spec, plan)
        self._room = Room(spec.name, link, self._store)
        self._topology = Topology(plan)
        self._recorder = Recorder(spec.run_dir, group.module) if spec.record else None
        self._initial = self._rank.weights_digest() if spec.index == 0 else ""
        self._arrivals = Arrivals(self._store.remote)
        self._queue: list[Message | Handed] = []

    def serve(self, pid: int) -> None:
        self.begin(pid)
        while self.turn(self._link.receive(self.timeout_ms())):
            pass

    def begin(self, pid: int) -> None:
        """Say that work can come."""
        if self._store.remote is not None:
            self._link.also_wake_on(self._store.remote.fileno())
        ready = Ready(worker=self._spec.name, pid=pid, sizes={}, initial_digest=self._initial)
        self._link.send(ready)

    def turn(self, messages: Sequence[Message]) -> bool:
        """Take the messages, and those that come while they are worked on. False: stopped."""
        self._receive(messages)
        self._arrivals.look()
        while self._queue:
            if self._store.remote is not None:  # blocks shall come while others are worked on
                self._receive(self._link.receive(0))
            message = self._next()
            match message:
                case None:
                    self._receive(self._link.receive(self.timeout_ms()))
                    self._room.look()
                case Stop():
                    self._stop(message)
                    return False
                case Handed():
                    self._work(message)
                case _:
                    self._take(message)
        self._room.look()
        return True

    def _receive(self, messages: Sequence[Message]) -> None:
        """Frees at once: they must not wait behind what needs the room."""
        for message in messages:
            match message:
                case Free():
                    self._store.free(message)
                case Recall():
                    self._room.recall()
                case Run() | Backward():
                    self._queue.append(self._arrivals.hand(message))
                case _:
                    self._queue.append(message)

    def _next(self) -> Message | Handed | None:
        """The first that can begin. Only work overtakes, and only work: see `Arrivals`."""
        self._arrivals.look()
        self._tell_of_waiting()
        for place, message in enumerate(self._queue):
            if not isinstance(message, Handed):
                return None if place else self._queue.pop(0)
            if self._arrivals.is_here(message):
                return self._queue.pop(place)
        return None

    def _tell_of_waiting(self) -> None:
        news = self._arrivals.news()
        if news is not None:
            items, porters = news
            self._link.send(Fetching(worker=self._spec.name, items=items, porters=porters))

    def _work(self, handed: Handed) -> None:
        match handed.order:
            case Run():
                with in_variant(handed.order.variant):
                    self._run(handed.order, handed)
                self._arrivals.ended(handed, goes_on=self._keeps(handed.order))
            case Backward():
                self._backward(handed.order, handed)
                self._arrivals.ended(handed)

    def _take(self, message: Message) -> None:
        match message:
            case Update():
                self._update(message)
            case Save():
                self._save(message)
            case _:
                raise InternalError(f"a gang was sent a {type(message).__name__}")

    def _wait(self, stream: str, nbytes: int) -> None:
        """Room in the pool comes with `Free`; everything else keeps its place in the queue."""
        self._room.wait(stream, nbytes, self._put_off)

    def _put_off(self, messages: list[Message]) -> None:
        self._arrivals.look()
        self._receive(messages)

    def _keeps(self, run: Run) -> bool:
        """Whether the item goes on until its gradient has come."""
        task = self._plan.task(run.task)
        learns = task.kind == "apply" and self._topology.gradient_source(task) is not None
        return learns and run.variant == 0

    def timeout_ms(self) -> int:
        """How long nothing is to be done unless something comes; -1: for ever."""
        asked = (self._arrivals.wake_in(), self._room.wake_in())
        wakes = [seconds for seconds in asked if seconds is not None]
        return math.ceil(min(wakes) * 1000.0) if wakes else -1

    def _run(self, run: Run, handed: Handed) -> None:
        began = time.perf_counter()
        task, item = self._plan.task(run.task), item_of(run, self._store)
        self._arrivals.begun(handed)
        outputs: dict[str, tuple[Batch, ...]] = {}
        weights: tuple[float, ...] = ()
        metrics: dict[str, tuple[float, float]] = {}
        dropped: tuple[tuple[int, str], ...] = ()
        tokens = 0
        if task.kind == "apply":
            outputs = {s: tuple(b) for s, b in self._rank.apply(task.name, item).items()}
        elif run.variant:
            metrics = dict(self._rank.evaluate(task.name, item))
        else:
            result = self._rank.train(task.name, item)
            outputs = {f"gradient/{s}": tuple(b) for s, b in result.gradients.items()}
            weights = tuple(float(result.weights[unit]) for unit in run.units)
            metrics, dropped = figures_of(result), result.dropped
            tokens = int(result.sums["tokens"])
            if self._recorder:
                self._recorder.rows(item)
        handles = {
            stream: tuple(self._store.write(batch, stream, self._wait) for batch in batches)
            for stream, batches in outputs.items()
        }
        sizes = {s: tuple(b.rows for b in outputs[s]) for s in run.outputs}
        del item, outputs  # what looks at the item's blocks from here on is not ours
        held = () if self._keeps(run) else self._store.leases.end(run.item)
        done = Done(
            worker=self._spec.name,
            item=run.item,
            outputs=handles,
            sizes=sizes,
            weights=weights,
            metrics=metrics,
            kept=(),
            dropped=dropped,
            tokens=tokens,
            busy_s=time.perf_counter() - began,
            held=held,
        )
        self._link.send(done)

    def _backward(self, message: Backward, handed: Handed) -> None:
        began = time.perf_counter()
        self._store.leases.begin(message.item, map(name_of, message.gradients))
        gradients = [self._store.open(handle) for handle in message.gradients]
        self._arrivals.begun(handed)
        self._rank.backward(message.task, message.item, message.units, gradients)
        del gradients
        held = self._store.leases.end(message.item)
        busy = time.perf_counter() - began
        done = BackwardDone(worker=self._spec.name, item=message.item, busy_s=busy, held=held)
        self._link.send(done)

    def _update(self, message: Update) -> None:
        began = time.perf_counter()
        order = UpdateOrder(
            step=message.step, part=message.part, divisor=message.divisor, owners=message.owners
        )
        metrics = self._rank.update(order)
        if self._recorder and message.step == 0 and message.part == 0 and self._spec.index == 0:
            self._recorder.gradient(self._rank.flat_gradient(), message.divisor)
        self._recorder = None
        weights: PlainHandle | None = None
        digest = ""
        if message.publish and self._spec.index == 0:
            flat, digest = self._rank.publish()
            batch = flat_batch(np.asarray(flat.numpy()))
            weights = self._store.write_apart(batch, "weights", self._wait)
        updated = Updated(
            worker=self._spec.name,
            version=message.version,
            metrics=metrics,
            weights=weights,
            digest=digest,
            busy_s=time.perf_counter() - began,
        )
        self._link.send(updated)

    def _save(self, message: Save) -> None:
        began = time.perf_counter()
        try:
            self._rank.save_state(message.folder)
        except (OSError, SafetensorError) as error:
            raise CannotWrite(message.folder, error) from error
        busy = time.perf_counter() - began
        self._link.send(Saved(worker=self._spec.name, step=message.step, busy_s=busy))

    def _stop(self, message: Stop) -> None:
        digest = ""
        if self._spec.index == 0:
            digest = self._rank.weights_digest()
            if message.checkpoint:
                folder = Path(message.checkpoint)
                folder.mkdir(parents=True, exist_ok=True)
                module = self._plan.group(self._spec.group).module
                self._rank.save(str(folder / f"{module}.safetensors"))
        last = Stopped(worker=self._spec.name, digest=digest, initial_digest=self._initial)
        self._link.send(last)


def figures_of(result: TrainResult) -> Sums:
    """A training item's metrics; rewards are counted where they are made, a trajectory once."""
    return {
        name: sums
        for name, sums in result.metrics.items()
        if name not in ("reward", "rows", "tokens")
    }
