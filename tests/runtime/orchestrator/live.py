"""Real workers with real models in one process, so that any of them can be lost at any event.

Everything is the run's own: core, workers, user functions, models, memory, checkpoints. Only the
sockets and processes are not: a connection is a list here, and a process is an object. A lost one
is dropped with what it was sent; what it had said may still come, after the news of its end.
"""

import os
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowgraph.ir.plan import Plan
from flowgraph.runtime.checkpoint import commit, latest, sweep
from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.messages import FromWorker, Message, decode, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.checkpoints import folder as checkpoint_folder
from flowgraph.runtime.orchestrator.checkpoints import restore
from flowgraph.runtime.orchestrator.core import step
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    CloseSegment,
    Commit,
    Event,
    Finish,
    Refuse,
    Send,
    Start,
    Started,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.state import State, new_state
from flowgraph.runtime.pool import new_memory
from flowgraph.runtime.progress import RunResult
from flowgraph.runtime.worker.engine import EngineWorker
from flowgraph.runtime.worker.gang import GangWorker
from flowgraph.runtime.worker.spec import WorkerSpec
from flowgraph.runtime.worker.stage import StageWorker
from tests.runtime.simulate.laws import check_state

LiveWorker = StageWorker | EngineWorker | GangWorker
KINDS: dict[str, type[LiveWorker]] = {
    "stage": StageWorker,
    "engine": EngineWorker,
    "gang": GangWorker,
}


EVERYBODY = "everybody"
"""In a worker's place: the orchestrator is lost with all workers, and a new one goes on."""


class Gone(Exception):
    """The worker was lost while it waited for a message in the midst of its work."""


class Wire:
    """A worker's connection: what it was sent, and what it says. others: lets them get on."""

    def __init__(self, token: str, incarnation: int, others: Callable[[str], None]) -> None:
        self.token = token
        self.inbox: deque[Message] = deque()
        self.said: deque[FromWorker] = deque()
        self.lost = False
        self._incarnation = incarnation
        self._others = others

    def also_wake_on(self, fd: int) -> None:
        """Nothing sleeps here."""

    def send(self, message: FromWorker) -> None:
        self.said.append(replace(message, incarnation=self._incarnation))

    def receive(self, timeout_ms: int) -> list[Message]:
        while not self.inbox and timeout_ms and not self.lost:
            self._others(self.token)  # it waits for room in the midst of its work
        if self.lost:
            raise Gone
        messages = list(self.inbox)
        self.inbox.clear()
        return messages


@dataclass(frozen=True, slots=True)
class Loss:
    """Who is lost at which event. at: counted over the whole run, from its first attempt.

    worker: its name, or EVERYBODY.
    """

    at: int
    worker: str


@dataclass
class LiveRun:
    """A run of one process. seed: decides who gets on next, and whether last words are late."""

    plan: Plan
    folder: Path
    steps: int
    exact: bool = True
    losses: Sequence[Loss] = ()
    checkpoint_every: int = 1
    seed: int = 0
    events: int = 0
    attempts: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    replaced: list[str] = field(default_factory=list)
    result: RunResult | None = None

    def run(self) -> RunResult:
        """To the end, through as many attempts as losses make."""
        self._draw = random.Random(self.seed)
        self._losses = {loss.at: loss.worker for loss in self.losses}
        while self.result is None:
            self.attempts += 1
            assert self.attempts <= 1 + len(self.losses), "an attempt too many"
            attempt = Attempt(self)
            try:
                attempt.run()
            finally:
                attempt.close()
        return self.result

    def victim(self) -> str | None:
        """Who is lost before the next event."""
        self.events += 1
        return self._losses.pop(self.events - 1, None)

    def choose(self, count: int) -> int:
        return self._draw.randrange(count)


class Attempt:
    """The run's workers and orchestrator from the last checkpoint until one cannot go on."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._options = RunOptions(
            run_dir=str(run.folder),
            steps=run.steps,
            exact=run.exact,
            checkpoint_every=run.checkpoint_every,
            restarts=100,
        )
        sweep(run.folder / "checkpoints")
        self._from = latest(run.folder / "checkpoints")
        self.state: State = new_state(run.plan, self._options)
        if self._from is not None:
            restore(self.state, (self._from / "run.msgpack").read_bytes())
        self._workers: dict[str, tuple[LiveWorker, Wire]] = {}
        self._gone: list[tuple[LiveWorker, Wire]] = []
        self._ended = False
        self._waiting: set[str] = set()
        self._segments: dict[str, int] = {}

    def run(self) -> None:
        self._feed(Started())
        for name in self.state.workers:
            self._start(name)
        while self._run.result is None and not self._ended:
            self._go_on()

    def _go_on(self, waiting: str = "") -> None:
        """One worker takes its turn, or one word of one is heard. waiting: who cannot."""
        if waiting:
            self._waiting.add(waiting)
        speaking = self._speaking()
        able = [
            name
            for name, (worker, wire) in self._workers.items()
            if wire.token not in self._waiting and _can_go_on(worker, wire)
        ]
        assert speaking or able, f"all stand still: {self.state.steps}"
        place = self._run.choose(len(speaking) + len(able))
        if place >= len(speaking):
            self._turn(able[place - len(speaking)])
        else:
            victim = self._run.victim()
            if victim == EVERYBODY:
                self._run.replaced.append(victim)
                self._ended = True
            elif victim is not None and not self.state.workers[victim].stopped:
                self._lose(victim)
            if not self._ended and speaking[place].said:
                self._hear(speaking[place].said.popleft())
        if self._ended:
            for _, wire in self._workers.values():
                wire.lost = True
        self._waiting.discard(waiting)

    def close(self) -> None:
        """Nothing of the attempt is left; checks that no memory of a lost process was."""
        living = {worker.token for worker in self.state.workers.values()}
        left = set(self._segments) - living - set(self.state.retired)
        for fd in self._segments.values():
            os.close(fd)
        for worker, _ in (*self._workers.values(), *self._gone):
            if isinstance(worker, StageWorker):
                worker.abandon()
        assert not left, f"segments that nobody reads were kept: {left}"

    def _speaking(self) -> list[Wire]:
        wires = [wire for _, wire in (*self._workers.values(), *self._gone)]
        return [wire for wire in wires if wire.said]

    def _hear(self, message: FromWorker) -> None:
        self._run.kinds[type(message).__name__] += 1
        heard = decode(encode(message))
        self._feed(heard)

    def _feed(self, event: Event) -> None:
        actions = step(self.state, event, self._run.events * 0.001)
        check_state(self.state, event, actions)
        for action in actions:
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Send():
                if action.worker in self._workers:  # else its process is gone, untold yet
                    wire = self._workers[action.worker][1]
                    wire.inbox.append(decode(encode(action.message)))
            case Start():
                self._start(action.worker)
            case CloseSegment():
                os.close(self._segments.pop(token_of(action.worker, action.incarnation)))
            case Refuse():
                self._run.refused[action.reason] += 1
            case Commit():
                folder = checkpoint_folder(str(self._run.folder), action.step)
                commit(Path(folder), action.data)
            case Finish():
                self._run.result = action.result
            case Abort():
                assert action.lost, f"{action.what}\n{action.traceback}"
                self._ended = True

    def _start(self, name: str) -> None:
        worker = self.state.workers[name]
        wire = Wire(worker.token, worker.incarnation, self._go_on)
        memory = new_memory(worker.token, self._run.plan.pool_bytes)
        self._segments[worker.token] = memory
        spec = WorkerSpec(
            name=name,
            group=worker.group.name,
            index=worker.index,
            plan="",
            endpoint="",
            log="",
            scratch="",
            run_dir=str(self._run.folder),
            steps=self._run.steps,
            exact=self._run.exact,
            record=False,
            restore=str(self._from) if self._from else "",
            incarnation=worker.incarnation,
            pool_bytes=self._run.plan.pool_bytes,
            pool_fd=memory,
            pool_pid=os.getpid(),
        )
        live = KINDS[worker.group.kind](spec, self._run.plan, wire)
        live.begin(os.getpid())
        self._workers[name] = (live, wire)

    def _lose(self, name: str) -> None:
        """As by kill -9: it does nothing any more, and part of what it said has been sent."""
        live, wire = self._workers.pop(name)
        wire.lost = True
        for _ in range(self._run.choose(len(wire.said) + 1)):
            wire.said.pop()
        if self._run.choose(2):  # its last words come before its death
            while wire.said:
                self._hear(wire.said.popleft())
        self._gone.append((live, wire))
        self._run.replaced.append(name)
        incarnation = self.state.workers[name].incarnation
        self._feed(WorkerDied(worker=name, how="is gone", log="", incarnation=incarnation))

    def _turn(self, name: str) -> None:
        live, wire = self._workers[name]
        with suppress(Gone):
            live.turn(wire.receive(0))


def _can_go_on(live: LiveWorker, wire: Wire) -> bool:
    return bool(wire.inbox) or (not isinstance(live, GangWorker) and live.pending)
