"""Workers that answer whatever the orchestrator asks, in any order that a test likes.

They hold no payload: blocks are numbered, and every block must be freed exactly once, or go with
the segment of a lost process. What a lost process had said may come after the news of its end.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from flowgraph.ir.plan import Plan
from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.messages import (
    Answers,
    Backward,
    BackwardDone,
    Done,
    Free,
    FromWorker,
    Generate,
    Generated,
    Issued,
    Load,
    Loaded,
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
from flowgraph.runtime.options import RunOptions
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
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.state import State, new_state
from flowgraph.runtime.progress import Progress, RunResult

Choose = Callable[[int], int]
"""From the number of answers that wait to the one whose connection is read next."""

Keep = Callable[[int], bool]

Kill = Callable[[int], str | None]
"""From the number of events so far to the worker that is lost now, if any."""


Watch = Callable[[State, Event, list[Action]], None]
"""Looks at the state after each event."""


def unwatched(_: State, __: Event, ___: list[Action]) -> None:
    return None


def nobody(_: int) -> str | None:
    return None


@dataclass
class Playing:
    """An item whose calls are not all answered. left: how many of them."""

    worker: str
    run: Run
    left: int


@dataclass
class World:
    """One orchestrator and its workers. `choose` decides the order of arrival.

    payload: blocks are looked at; not where others than these workers speak for them.
    checkpoint: what the run goes on from. commits: checkpoints that became whole.
    """

    plan: Plan
    choose: Choose
    steps: int = 3
    exact: bool = False
    source_size: int = -1
    keep: Keep = lambda _: True
    calls_per_item: int = 3
    kill: Kill = nobody
    watch: Watch = unwatched
    payload: bool = True
    restarts: int = 1000
    checkpoint_every: int = 0
    checkpoint: Commit | None = None
    commits: list[Commit] = field(default_factory=list)
    state: State = field(init=False)
    waiting: list[tuple[str, FromWorker]] = field(default_factory=list)
    live: dict[tuple[str, int, int], str] = field(default_factory=dict)
    freed: set[tuple[str, int, int]] = field(default_factory=set)
    trained: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    ran_at: list[tuple[str, int, int, int]] = field(default_factory=list)
    divisors: list[tuple[int, float]] = field(default_factory=list)
    owners: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    calls: dict[tuple[str, int], Playing] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    aborted: Abort | None = None
    began: bool = False
    log: list[tuple[str, Message]] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    result: RunResult | None = None
    now: float = 0.0
    _blocks: int = 0
    _calls: int = 0

    def __post_init__(self) -> None:
        options = RunOptions(
            run_dir="run",
            steps=self.steps,
            exact=self.exact,
            restarts=self.restarts,
            checkpoint_every=self.checkpoint_every,
        )
        self.state = new_state(self.plan, options)
        if self.checkpoint is not None:
            restore(self.state, self.checkpoint.data)

    def run(self, events: int = 100_000) -> RunResult:
        """Until the run ends; raises AssertionError when it stands still before."""
        self.run_some(events)
        assert self.result is not None, "the run did not end"
        return self.result

    def run_some(self, events: int) -> None:
        """So many events, or until the run ends."""
        if not self.began:
            self.began = True
            self.feed(Started())
            for name in self.state.workers:
                self._ready(name)
        for number in range(events):
            if self.result is not None:
                return
            assert self.aborted is None, self.aborted
            victim = self.kill(number)
            if victim is not None:
                self.lose(victim)
                continue
            assert self.waiting, f"nothing waits and the run has not ended: {self.state.steps}"
            self.feed(self._next())

    def _next(self) -> FromWorker:
        """The first message on the connection that is chosen: connections keep their order."""
        chosen = self.waiting[self.choose(len(self.waiting))]
        for place, (worker, message) in enumerate(self.waiting):
            if worker == chosen[0] and message.incarnation == chosen[1].incarnation:
                del self.waiting[place]
                return message
        raise AssertionError("the chosen one is there")

    def lose(self, worker: str) -> None:
        """The worker's process is gone; what it had said may still come."""
        incarnation = self.state.workers[worker].incarnation
        self.feed(WorkerDied(worker=worker, how="is gone", log="log", incarnation=incarnation))

    def _ready(self, worker: str) -> None:
        sizes = {"0": self.source_size, "1": self.source_size}
        self._later(worker, Ready(worker=worker, pid=1, sizes=sizes))

    def feed(self, event: Event) -> list[Action]:
        self.now += 0.001
        actions = step(self.state, event, self.now)
        self.watch(self.state, event, actions)
        for action in actions:
            match action:
                case Send():
                    self.log.append((action.worker, action.message))
                    self._answer(action.worker, action.message)
                case Tell():
                    self.progress.append(action.progress)
                case Start():
                    self._ready(action.worker)
                case CloseSegment():
                    self._close(token_of(action.worker, action.incarnation))
                case Refuse():
                    self.refused[action.reason] += 1
                case Commit():
                    self.commits.append(action)
                case Abort():
                    self.aborted = action
                case Finish():
                    self.result = action.result
        return actions

    def _later(self, worker: str, message: FromWorker) -> None:
        incarnation = self.state.workers[worker].incarnation
        self.waiting.append((worker, replace(message, incarnation=incarnation)))

    def _close(self, token: str) -> None:
        for block in [block for block in self.live if block[0] == token]:
            kept = block in self.state.references
            assert not kept, f"{block} is closed and will be read"
            del self.live[block]

    def _answer(self, worker: str, message: Message) -> None:
        match message:
            case Run():
                self._run(worker, message)
            case Generate():
                ids = tuple((call[0],) for call in message.calls)
                reply = Generated(
                    worker=worker, origin=message.origin, completions=ids, tokens=1, busy_s=0.0
                )
                self._later(worker, reply)
            case Answers():
                for (call,) in message.completions:
                    self._answered(self.calls.pop((self.state.workers[worker].token, call)))
            case Backward():
                for handle in message.gradients:
                    assert self._alive(handle), "a gradient was freed before it was read"
                done = BackwardDone(worker=worker, item=message.item, busy_s=0.0)
                self._later(worker, done)
            case Update():
                self._update(worker, message)
            case Load():
                assert self._alive(message.weights), "weights were freed before they were loaded"
                self._later(worker, Loaded(worker=worker, version=message.version, busy_s=0.0))
            case Free():
                for offset, generation in message.blocks if self.payload else ():
                    block = (self.state.workers[worker].token, offset, generation)
                    assert block in self.live, f"{block} was freed twice, or never written"
                    del self.live[block]
                    self.freed.add(block)
            case Save():
                self._later(worker, Saved(worker=worker, step=message.step, busy_s=0.0))
            case Stop():
                self._later(worker, Stopped(worker=worker, digest="d", initial_digest="i"))
            case _:
                raise AssertionError(f"sent {message}")

    def _alive(self, handle: PlainHandle) -> bool:
        return not self.payload or (handle[0], handle[3], handle[5]) in self.live

    def _block(self, owner: str, what: str) -> PlainHandle:
        self._blocks += 1
        owner = self.state.workers[owner].token
        self.live[(owner, self._blocks * 64, self._blocks)] = what
        return (owner, 1, 3, self._blocks * 64, 64, self._blocks, 1, ())

    def _run(self, worker: str, run: Run) -> None:
        for per_unit in run.inputs.values():
            for handles in per_unit:
                assert handles, "a unit without input"
                assert all(map(self._alive, handles)), "an input was freed before it was read"
        task = self.plan.task(run.task)
        agents = [a for s in task.stages for a in self.plan.graph.stage(s).agents]
        self.ran_at.append((run.task, run.variant, run.step, run.version))
        if not agents:
            self._later(worker, self._done(worker, run))
            return
        playing = Playing(worker, run, self.calls_per_item * len(agents))
        token = self.state.workers[worker].token
        for agent in agents:
            numbers = range(self._calls, self._calls + self.calls_per_item)
            self._calls = numbers.stop
            self.calls.update({(token, number): playing for number in numbers})
            calls = tuple((number,) for number in numbers)
            self._later(worker, Issued(worker=worker, agent=agent, calls=calls))

    def _answered(self, playing: Playing) -> None:
        playing.left -= 1
        if playing.left == 0:
            self._later(playing.worker, self._done(playing.worker, playing.run))

    def _done(self, worker: str, run: Run) -> Done:
        task = self.plan.task(run.task)
        outputs: dict[str, tuple[PlainHandle, ...]] = {}
        kept: tuple[int, ...] = ()
        for stream in run.outputs:
            outputs[stream] = tuple(self._block(worker, stream) for _ in run.units)
        if not task.gated:
            kept = tuple(s for samples in run.samples for s in samples if self.keep(s))
        weights: tuple[float, ...] = ()
        if task.kind == "train" and run.variant == 0:
            weights = tuple(float(len(samples)) for samples in run.samples)
            for samples in run.samples:
                self.trained.append((run.step, run.task, samples))
            for stream in run.inputs:
                source = self.state.plan.producer(stream)
                if source.kind == "apply" and self.state.topology.gradient_source(source):
                    blocks = tuple(self._block(worker, "gradient") for _ in run.units)
                    outputs[f"gradient/{stream}"] = blocks
        return Done(
            worker=worker,
            item=run.item,
            outputs=outputs,
            sizes={stream: tuple(100 for _ in run.units) for stream in run.outputs},
            weights=weights,
            metrics={"loss": (2.0, 1.0)} if weights else {},
            kept=kept,
            dropped=(),
            tokens=10,
            busy_s=0.0,
        )

    def _update(self, worker: str, message: Update) -> None:
        self.divisors.append((message.step, message.divisor))
        if worker.startswith("lm"):
            self.owners.append(message.owners)
        weights = None
        if message.publish and worker.endswith("-0"):
            weights = self._block(worker, "weights")
        reply = Updated(
            worker=worker,
            version=message.version,
            metrics={},
            weights=weights,
            digest="x",
            busy_s=0.0,
        )
        self._later(worker, reply)


def first(_: int) -> int:
    """Answers come in the order in which they were made."""
    return 0


def last(count: int) -> int:
    """The newest answer comes first."""
    return count - 1


def samples_of(result: RunResult) -> list[dict[str, Any]]:
    return [dict(record) for record in result.samples.values()]
