"""A rank of a module's gang in virtual time: messages in order, one at a time."""

from __future__ import annotations

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Task
from flowgraph.runtime.messages import (
    Backward,
    BackwardDone,
    Done,
    Free,
    Run,
    Save,
    Saved,
    Stop,
    Stopped,
    Update,
    Updated,
)
from flowgraph.runtime.policy.step_time import TaskTimes
from flowgraph.runtime.simulate.actor import Actor, Handles
from flowgraph.runtime.simulate.blocks import Want


class SimGang(Actor):
    """`ledger` of the world learns which rank has which unit's gradient, and of each update."""

    def take(self) -> None:
        message = self.inbox.popleft()
        match message:
            case Run():
                self._run(message)
            case Backward():
                self._backward(message)
            case Update():
                self._update(message)
            case Save():
                self._save(message)
            case Free():
                self.free(message)
            case Stop():
                self.send(Stopped(worker=self.name, digest="", initial_digest=""))
            case _:
                raise InternalError(f"a gang was sent a {type(message).__name__}")

    def waiting_for(self) -> str:
        if self.world.updating:
            return "the update"
        state = self.world.state
        held = state.steps[0].backward if state.steps else ()
        mine = any(state.items[item].worker == self.name for item in held)
        return "gradients" if mine else "rows"

    def _weights(self, run: Run) -> tuple[int, ...]:
        """What each unit weighs: by the first stream that it reads."""
        stream = next(iter(run.inputs))
        return tuple(
            self.world.workload.weight(stream, run.variant, samples) for samples in run.samples
        )

    def _run(self, run: Run) -> None:
        for per_unit in run.inputs.values():
            for handles in per_unit:
                for handle in handles:
                    self.world.blocks.read(handle)
        task = self.world.plan.task(run.task)
        weights = self._weights(run)
        times = self.world.times.tasks.get(task.name, TaskTimes())
        seconds = times.forward(sum(weights), run.variant)
        kind = "evaluate" if run.variant else task.kind

        def ended() -> None:
            wants = self._wants_of(run, task)
            self.write(wants, lambda handles: self._done(run, task, weights, handles, seconds))

        self.work(seconds, kind, ended, step=run.step)

    def _wants_of(self, run: Run, task: Task) -> list[Want]:
        streams = list(run.outputs)
        if task.kind == "train" and run.variant == 0:
            streams += [
                f"gradient/{stream}" for stream in run.inputs if self.world.sends_gradient(stream)
            ]
        return [
            self.world.want(stream, run.variant, samples)
            for stream in streams
            for samples in run.samples
        ]

    def _done(
        self, run: Run, task: Task, weights: tuple[int, ...], handles: Handles, busy_s: float
    ) -> None:
        count = len(run.units)
        streams = list(dict.fromkeys(self.world.blocks.read(h).stream for h in handles))
        trains = task.kind == "train" and run.variant == 0
        if trains:
            self._computed(run.step, run.units, run.samples)
        done = Done(
            worker=self.name,
            item=run.item,
            outputs={
                stream: tuple(handles[i * count : (i + 1) * count])
                for i, stream in enumerate(streams)
            },
            sizes={
                stream: tuple(
                    self.world.workload.weight(stream, run.variant, s) for s in run.samples
                )
                for stream in run.outputs
            },
            weights=tuple(map(float, weights)) if trains else (),
            metrics={},
            kept=(),
            dropped=(),
            tokens=sum(weights) if trains else 0,
            busy_s=busy_s,
        )
        self.send(done)

    def _computed(
        self, step: int, units: tuple[int, ...], samples: tuple[tuple[int, ...], ...]
    ) -> None:
        module = self.worker.group.module
        for unit, members in zip(units, samples, strict=True):
            self.world.ledger.computed(module, step, unit, rank=self.worker.index, samples=members)

    def _backward(self, message: Backward) -> None:
        for handle in message.gradients:
            self.world.blocks.read(handle)
        step = self.world.state.steps[0]
        samples = tuple(step.units[unit] for unit in message.units)
        task = self.world.plan.task(message.task)
        weight = sum(self.world.workload.weight(task.inputs[0], 0, members) for members in samples)
        times = self.world.times.tasks.get(task.name, TaskTimes())
        seconds = times.backward(weight)

        def ended() -> None:
            self._computed(step.step, message.units, samples)
            self.send(BackwardDone(worker=self.name, item=message.item, busy_s=seconds))

        self.work(seconds, "backward", ended, step=step.step)

    def _update(self, message: Update) -> None:
        module = self.worker.group.module
        seconds = self.world.times.updates.get(module, 0.0)

        def ended() -> None:
            if self.worker.index == 0:
                self.world.ledger.updated(module, message)
            wants = []
            if message.publish and self.worker.index == 0:
                size = self.world.weight_bytes(module)
                wants = [Want(stream="weights", records=1, bytes=size, apart=True)]
            self.write(wants, lambda handles: self._updated(message, handles, seconds))

        self.work(seconds, "update", ended, step=message.step)

    def _updated(self, message: Update, handles: Handles, busy_s: float) -> None:
        updated = Updated(
            worker=self.name,
            version=message.version,
            metrics={},
            weights=handles[0] if handles else None,
            digest="",
            busy_s=busy_s,
        )
        self.send(updated)

    def _save(self, message: Save) -> None:
        """A measured checkpoint stops the rank for as long as it did. An estimate is of a disk that
        no plan knows: work goes on beside it, and `checkpoint_s` says what it is."""
        seconds = self.world.times.saves.get(self.worker.group.module, 0.0)

        def saved() -> None:
            if not self.dead:
                self.send(Saved(worker=self.name, step=message.step, busy_s=seconds))

        if self.world.times.saves_measured:
            self.work(seconds, "save", saved)
        else:
            self.world.clock.at(self.world.clock.now + seconds, saved)
