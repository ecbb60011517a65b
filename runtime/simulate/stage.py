"""A stage worker in virtual time: turns over all messages that are there, many items at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowgraph.ir.errors import InternalError
from flowgraph.ir.graph import Stage
from flowgraph.runtime.messages import Answers, Done, Free, Issued, Message, Run, Stop, Stopped
from flowgraph.runtime.policy.step_time import HostTimes
from flowgraph.runtime.simulate.actor import Actor, Handles
from flowgraph.runtime.simulate.workload import Turn

if TYPE_CHECKING:
    from flowgraph.runtime.orchestrator.state import Worker
    from flowgraph.runtime.simulate.world import World

Call = tuple[int, int, int]
"""(id, prompt tokens, response tokens): what a call is without its tokens."""


@dataclass(slots=True)
class Trajectory:
    """rounds: what it will call yet. open: calls of the present round without an answer."""

    item: int
    rounds: Iterator[list[Turn]]
    open: int = 0


@dataclass(slots=True)
class Play:
    """An item whose trajectories go on. open: those that have not ended."""

    run: Run
    open: int = 0


@dataclass(slots=True)
class SimTurn:
    """What one turn of the worker's loop comes to."""

    seconds: float = 0.0
    step: int = -1
    issued: dict[str, list[Call]] = field(default_factory=dict)
    finished: list[Run] = field(default_factory=list)


class SimStage(Actor):
    """Calls are numbered by the worker; each is answered once."""

    def __init__(self, world: World, worker: Worker) -> None:
        super().__init__(world, worker)
        self._plays: dict[int, Play] = {}
        self._calls: dict[int, Trajectory] = {}
        self._issued = 0
        self._spent = 0.0  # seconds of work since the last `Done`

    def take(self) -> None:
        turn = SimTurn()
        stopped = False
        while self.inbox:
            stopped = self._message(self.inbox.popleft(), turn) or stopped
        if stopped:
            self.send(Stopped(worker=self.name, digest="", initial_digest=""))
        elif turn.seconds or turn.issued or turn.finished:
            self.work(turn.seconds, "host", lambda: self._end(turn), step=turn.step)

    def waiting_for(self) -> str:
        if self._calls:
            return "answers of engines"
        return "the update" if self.world.updating else "work"

    def _message(self, message: Message, turn: SimTurn) -> bool:
        match message:
            case Run():
                self._run(message, turn)
            case Answers():
                for (call,) in message.completions:
                    self._answer(call, turn)
            case Free():
                self.free(message)
            case Stop():
                return True
            case _:
                raise InternalError(f"a stage worker was sent a {type(message).__name__}")
        return False

    def _run(self, run: Run, turn: SimTurn) -> None:
        task = self.world.plan.task(run.task)
        for per_unit in run.inputs.values():
            for handles in per_unit:
                for handle in handles:
                    self.world.blocks.read(handle)
        times = self.world.times.hosts.get(task.name, HostTimes())
        stage = self.world.workload.episodes(task)
        samples = [sample for unit in run.samples for sample in unit]
        tries = 1 if stage is None else self.world.workload.trajectories(stage, run.variant)
        turn.seconds += times.item_s + times.sample_s * len(samples) * tries
        turn.step = run.step
        if stage is None:
            turn.finished.append(run)
            return
        self._start(run, stage, samples, tries, turn)

    def _start(self, run: Run, stage: Stage, samples: list[int], tries: int, turn: SimTurn) -> None:
        play = self._plays[run.item] = Play(run, len(samples) * tries)
        for sample in samples:
            for number in range(tries):
                rounds = self.world.workload.play(stage.name, run.variant, sample, number)
                self._go_on(Trajectory(run.item, iter(rounds)), turn)
        if not samples:
            self._ended(play, turn)

    def _go_on(self, trajectory: Trajectory, turn: SimTurn) -> None:
        """The trajectory's next round of calls, or its end."""
        calls = next(trajectory.rounds, None)
        play = self._plays[trajectory.item]
        if calls is None:
            play.open -= 1
            if play.open == 0:
                self._ended(play, turn)
            return
        times = self.world.times.hosts.get(play.run.task, HostTimes())
        trajectory.open = len(calls)
        for call in calls:
            self._issued += 1
            self._calls[self._issued] = trajectory
            plain = (self._issued, call.prompt, call.response)
            turn.issued.setdefault(call.agent, []).append(plain)
            turn.seconds += times.call_s

    def _answer(self, call: int, turn: SimTurn) -> None:
        trajectory = self._calls.pop(call)
        trajectory.open -= 1
        turn.step = self._plays[trajectory.item].run.step
        if trajectory.open == 0:
            self._go_on(trajectory, turn)

    def _ended(self, play: Play, turn: SimTurn) -> None:
        del self._plays[play.run.item]
        turn.finished.append(play.run)

    def _end(self, turn: SimTurn) -> None:
        for agent, calls in turn.issued.items():
            self.send(Issued(worker=self.name, agent=agent, calls=tuple(calls)))
        self._spent += turn.seconds
        self._finish(turn.finished)

    def _finish(self, runs: list[Run]) -> None:
        """Write and report one item after the other."""
        if not runs:
            return
        run, *others = runs
        gated = self.world.plan.task(run.task).gated
        keeps = self.world.workload.keeps
        wants = [
            self.world.want(stream, run.variant, tuple(s for s in unit if gated or keeps(s)))
            for stream in run.outputs
            for unit in run.samples
        ]

        def written(handles: Handles) -> None:
            self.send(self._done(run, handles))
            self._spent = 0.0
            self._finish(others)

        self.write(wants, written)

    def _done(self, run: Run, handles: Handles) -> Done:
        task = self.world.plan.task(run.task)
        count = len(run.units)
        workload = self.world.workload
        kept: tuple[int, ...] = ()
        if not task.gated:
            kept = tuple(s for unit in run.samples for s in unit if workload.keeps(s))
        return Done(
            worker=self.name,
            item=run.item,
            outputs={
                stream: tuple(handles[i * count : (i + 1) * count])
                for i, stream in enumerate(run.outputs)
            },
            sizes={
                stream: tuple(workload.weight(stream, run.variant, s) for s in run.samples)
                for stream in run.outputs
            },
            weights=(),
            metrics={},
            kept=kept,
            dropped=(),
            tokens=0,
            busy_s=self._spent,
        )
