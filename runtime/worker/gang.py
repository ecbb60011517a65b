"""A gang worker: one rank of a module; forward, backward, training items, updates."""

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
    Free,
    Message,
    PlainHandle,
    Ready,
    Run,
    Save,
    Saved,
    Stop,
    Stopped,
    Update,
    Updated,
)
from flowgraph.runtime.stages.faults import in_variant
from flowgraph.runtime.trainer.collective import Alone, Collective, Gloo
from flowgraph.runtime.trainer.interface import Sums, TrainResult, UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from flowgraph.runtime.worker.items import item_of
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import flat_batch, store_of
from flowgraph.runtime.worker.recording import Recorder
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
    """Takes messages in order; while its pool is full it still takes `Free`."""

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
        self._recorder = Recorder(spec.run_dir, group.module) if spec.record else None
        self._initial = self._rank.weights_digest() if spec.index == 0 else ""
        self._queue: list[Message] = []

    def serve(self, pid: int) -> None:
        self.begin(pid)
        while self.turn(self._link.receive(-1)):
            pass

    def begin(self, pid: int) -> None:
        """Say that work can come."""
        ready = Ready(worker=self._spec.name, pid=pid, sizes={}, initial_digest=self._initial)
        self._link.send(ready)

    def turn(self, messages: Sequence[Message]) -> bool:
        """Take the messages, and those that come while they are worked on. False: stopped."""
        self._queue += messages
        while self._queue:
            message = self._queue.pop(0)
            if isinstance(message, Stop):
                self._stop(message)
                return False
            self._take(message)
        return True

    def _take(self, message: Message) -> None:
        match message:
            case Run():
                with in_variant(message.variant):
                    self._run(message)
            case Backward():
                self._backward(message)
            case Update():
                self._update(message)
            case Save():
                self._save(message)
            case Free():
                self._store.free(message)
            case _:
                raise InternalError(f"a gang was sent a {type(message).__name__}")

    def _wait(self) -> None:
        """Room in the pool comes with `Free`; everything else keeps its place in the queue."""
        for message in self._link.receive(-1):
            if isinstance(message, Free):
                self._store.free(message)
            else:
                self._queue.append(message)

    def _run(self, run: Run) -> None:
        began = time.perf_counter()
        task, item = self._plan.task(run.task), item_of(run, self._store)
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
        done = Done(
            worker=self._spec.name,
            item=run.item,
            outputs=handles,
            sizes={s: tuple(b.rows for b in outputs[s]) for s in run.outputs},
            weights=weights,
            metrics=metrics,
            kept=(),
            dropped=dropped,
            tokens=tokens,
            busy_s=time.perf_counter() - began,
        )
        self._link.send(done)

    def _backward(self, message: Backward) -> None:
        began = time.perf_counter()
        gradients = [self._store.open(handle) for handle in message.gradients]
        self._rank.backward(message.task, message.item, message.units, gradients)
        busy = time.perf_counter() - began
        self._link.send(BackwardDone(worker=self._spec.name, item=message.item, busy_s=busy))

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
