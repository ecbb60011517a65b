"""Workers that answer whatever the orchestrator asks, in any order that a test likes.

They hold no payload: blocks are numbered, and every block must be freed exactly once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flowgraph.ir.plan import Plan
from flowgraph.runtime.messages import (
    Answers,
    Backward,
    BackwardDone,
    Done,
    Free,
    Generate,
    Generated,
    Issued,
    Load,
    Loaded,
    Message,
    PlainHandle,
    Ready,
    Run,
    Stop,
    Stopped,
    Update,
    Updated,
)
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.core import step
from flowgraph.runtime.orchestrator.events import Action, Event, Finish, Send, Started, Tell
from flowgraph.runtime.orchestrator.state import State, new_state
from flowgraph.runtime.progress import Progress, RunResult

Choose = Callable[[int], int]
"""From the number of answers that wait to the one that comes next."""

Keep = Callable[[int], bool]


@dataclass
class World:
    """One orchestrator and its workers. `choose` decides the order of arrival."""

    plan: Plan
    choose: Choose
    steps: int = 3
    exact: bool = False
    source_size: int = -1
    keep: Keep = lambda _: True
    calls_per_item: int = 3
    state: State = field(init=False)
    waiting: list[tuple[str, Message]] = field(default_factory=list)
    live: dict[tuple[str, int, int], str] = field(default_factory=dict)
    freed: set[tuple[str, int, int]] = field(default_factory=set)
    trained: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)
    ran_at: list[tuple[str, int, int, int]] = field(default_factory=list)
    divisors: list[tuple[int, float]] = field(default_factory=list)
    owners: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    held: dict[str, tuple[Run, int]] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)
    result: RunResult | None = None
    now: float = 0.0
    _blocks: int = 0

    def __post_init__(self) -> None:
        options = RunOptions(run_dir="run", steps=self.steps, exact=self.exact)
        self.state = new_state(self.plan, options)

    def run(self, events: int = 100_000) -> RunResult:
        """Until the run ends; raises AssertionError when it stands still before."""
        self.feed(Started())
        for name in self.state.workers:
            sizes = {"0": self.source_size, "1": self.source_size}
            self.waiting.append((name, Ready(worker=name, pid=1, sizes=sizes)))
        for _ in range(events):
            if self.result is not None:
                return self.result
            assert self.waiting, f"nothing waits and the run has not ended: {self.state.steps}"
            _, message = self.waiting.pop(self.choose(len(self.waiting)))
            self.feed(message)
        raise AssertionError("the run did not end")

    def feed(self, event: Event) -> list[Action]:
        self.now += 0.001
        actions = step(self.state, event, self.now)
        for action in actions:
            match action:
                case Send():
                    self._answer(action.worker, action.message)
                case Tell():
                    self.progress.append(action.progress)
                case Finish():
                    self.result = action.result
        return actions

    def _later(self, worker: str, message: Message) -> None:
        self.waiting.append((worker, message))

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
                    self._answered(call)
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
                for offset, generation in message.blocks:
                    block = (worker, offset, generation)
                    assert block in self.live, f"{block} was freed twice, or never written"
                    del self.live[block]
                    self.freed.add(block)
            case Stop():
                self._later(worker, Stopped(worker=worker, digest="d", initial_digest="i"))
            case _:
                raise AssertionError(f"sent {message}")

    def _alive(self, handle: PlainHandle) -> bool:
        return (handle[0], handle[3], handle[5]) in self.live

    def _block(self, owner: str, what: str) -> PlainHandle:
        self._blocks += 1
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
        self.held[f"{run.item}"] = (run, self.calls_per_item * len(agents))
        for agent in agents:
            calls = tuple((f"{run.item}/{agent}/{n}",) for n in range(self.calls_per_item))
            self._later(worker, Issued(worker=worker, agent=agent, calls=calls))

    def _answered(self, call: str) -> None:
        item = call.split("/")[0]
        run, left = self.held[item]
        self.held[item] = (run, left - 1)
        if left == 1:
            worker = self.state.items[run.item].worker
            self._later(worker, self._done(worker, run))

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
