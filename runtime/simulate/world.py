"""The orchestrator's own core, its workers in virtual time, and the wire between them.

Laws: messages of one connection arrive in the order in which they were sent, each once (as over
ZeroMQ's DEALER and ROUTER, which neither repeat nor reorder on a connection that lives); messages
of different workers may overtake one another in any way. The orchestrator takes one at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.incarnation import process_of, token_of
from flowgraph.runtime.messages import Message, Ready
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
from flowgraph.runtime.orchestrator.state import Phase, RunPhase, State, Worker, new_state
from flowgraph.runtime.policy.step_time import StepTimes
from flowgraph.runtime.progress import Progress, RunResult, RunStarted
from flowgraph.runtime.simulate.actor import Actor
from flowgraph.runtime.simulate.blocks import Blocks, Want
from flowgraph.runtime.simulate.clock import Clock, Cores
from flowgraph.runtime.simulate.engine import SimEngine
from flowgraph.runtime.simulate.faults import Faults
from flowgraph.runtime.simulate.gang import SimGang
from flowgraph.runtime.simulate.ledger import Entry, Ledger
from flowgraph.runtime.simulate.stage import SimStage
from flowgraph.runtime.simulate.timeline import Mark, Span, Timeline
from flowgraph.runtime.simulate.workload import Workload

KINDS: dict[str, type[Actor]] = {"stage": SimStage, "engine": SimEngine, "gang": SimGang}
ORCHESTRATOR = "orchestrator"

Watch: TypeAlias = Callable[[State, Event, list[Action]], None]
"""Called after every event that the core has taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a simulation is of; all attempts of it share it. background: busy processes of others
    on each node. source_size: samples of the source where it ends; -1 takes it as endless.
    start_s: seconds from the start of workers until they are ready.
    """

    plan: Plan
    options: RunOptions
    times: StepTimes
    workload: Workload
    faults: Faults
    background: float = 0.0
    source_size: int = -1
    start_s: float = 0.0
    watch: Watch | None = None


class World:
    """One attempt at the run, from its start or a checkpoint. Exactly one of these follows `run`:
    `result` is set (it ended well), `abort` is (it did not), or neither: it stands still.
    """

    def __init__(
        self,
        setting: Setting,
        timeline: Timeline,
        *,
        began: float = 0.0,
        checkpoint: Commit | None = None,
        trained: Iterable[Entry] = (),
        restarts: int = 0,
    ) -> None:
        self.plan = setting.plan
        self.times = setting.times
        self.workload = setting.workload
        self.exact = setting.options.exact
        self.clock = Clock(began)
        self.began = began
        self.state = new_state(setting.plan, setting.options)
        self.state.restarts = restarts
        if checkpoint is not None:
            restore(self.state, checkpoint.data)
        self.blocks = Blocks(setting.plan.pool_bytes)
        self.ledger = Ledger(exact=self.exact, entries=trained)
        self.timeline = timeline
        self.progress: list[tuple[float, Progress]] = []
        self.commits: list[Commit] = []
        self.result: RunResult | None = None
        self.abort: Abort | None = None
        self.training = False  # whether the present step is a training step
        self.events = self.most_inbox = 0
        self.refused: Counter[str] = Counter()
        self._setting = setting
        self._inbox: deque[Event] = deque()
        self._taking = False
        self._phase: object = None
        self._links: dict[tuple[str, str], tuple[int, float]] = {}
        self.cores = _cores(setting.plan, self.clock, setting.background)
        self._record_bytes = {
            c.stream: max(1, c.capacity_bytes // c.capacity_records) for c in setting.plan.channels
        }
        # Weights that go from device to device are in nobody's pool.
        self._record_bytes |= {
            c.stream: 1 for c in setting.plan.channels if c.transport.startswith("device-")
        }
        self.actors = {
            name: KINDS[worker.group.kind](self, worker)
            for name, worker in self.state.workers.items()
        }

    def run(self, events: int = 50_000_000) -> None:
        """Until the run ends, or nothing is due any more."""
        setting = self._setting
        self._post(Started())
        for actor in self.actors.values():
            self._start(actor)
        for fault in setting.faults.faults:
            # Of an earlier attempt's end, only the first attempt's start is no such end.
            if fault.kind == "crash" and (fault.start_s > self.began or not self.began):
                for name in self.actors if fault.worker == "*" else (fault.worker,):
                    self.clock.at(fault.start_s, partial(self._crash, name))
        while self.result is None and self.abort is None and self.clock.turn():
            events -= 1
            if events < 0:
                raise InternalError("a simulation does not end")

    def _start(self, actor: Actor) -> None:
        """The actor's process says that it is ready once it has started."""
        variants = 1 + len(self.state.topology.variants())
        sizes = {str(variant): self._setting.source_size for variant in range(variants)}
        ready = Ready(worker=actor.name, pid=0, sizes=sizes)

        def started() -> None:
            if not actor.dead:
                actor.send(ready)

        self.clock.at(self.clock.now + self._setting.start_s, started)

    def _replace(self, start: Start) -> None:
        lost, worker = self.actors[start.worker], self.state.workers[start.worker]
        actor = KINDS[worker.group.kind](self, worker)
        actor.succeed(lost)
        self.actors[start.worker] = actor
        self._start(actor)

    @property
    def updating(self) -> bool:
        """Whether the present step is at its update."""
        return bool(self.state.steps) and self.state.steps[0].phase is Phase.UPDATING

    def up(self, token: str, message: Message) -> None:
        """From a worker's process to the orchestrator."""
        time = self._arrival(token, "up")
        self.clock.at(time, lambda: self._post(message))
        again = self._setting.faults.again(
            process_of(token)[0], self._links[(token, "up")][0], time
        )
        if again is not None:
            self.clock.at(again, lambda: self._post(message))

    def _down(self, worker: str, message: Message) -> None:
        actor = self.actors[worker]
        self.clock.at(self._arrival(actor.token, "down"), lambda: actor.receive(message))

    def _arrival(self, token: str, direction: str) -> float:
        number, before = self._links.get((token, direction), (0, 0.0))
        time = self._setting.faults.arrival(
            process_of(token)[0], direction, number, self.clock.now, self.times.wire_s
        )
        time = max(time, before)
        self._links[(token, direction)] = (number + 1, time)
        return time

    def _post(self, event: Event) -> None:
        self._inbox.append(event)
        self.most_inbox = max(self.most_inbox, len(self._inbox))
        if not self._taking:
            self._take()

    def _take(self) -> None:
        """One event through the core; its actions go out when its time has been worked off."""
        event = self._inbox.popleft()
        self.events += 1
        actions = step(self.state, event, self.clock.now - self.began)
        if self._setting.watch is not None:
            self._setting.watch(self.state, event, actions)
        self._book_waits()
        self._taking = True
        began = self.clock.now
        work = self.times.event_s * (1 + sum(isinstance(a, Send) for a in actions))

        def ended() -> None:
            if work:
                span = Span(
                    worker=ORCHESTRATOR, kind="events", start=began, end=self.clock.now, work=work
                )
                self.timeline.spans.append(span)
            for action in actions:
                self._act(action)
            self._taking = False
            if self._inbox:
                self._take()

        if work:
            self.cores[(self.plan.cluster.nodes[0].name, -1)].start(work, ended)
        else:
            ended()

    def _act(self, action: Action) -> None:
        match action:
            case Send():
                self._down(action.worker, action.message)
            case Tell():
                self.progress.append((self.clock.now, action.progress))
                if isinstance(action.progress, RunStarted):
                    self._forget_waits()
                self.timeline.marks.append(Mark(time=self.clock.now, what=_mark(action.progress)))
            case Commit():
                self.commits.append(action)
                mark = Mark(time=self.clock.now, what=f"checkpoint {action.step}")
                self.timeline.marks.append(mark)
            case Start():
                self._replace(action)
            case CloseSegment():
                self.blocks.close(token_of(action.worker, action.incarnation))
            case Refuse():
                self.refused[action.reason] += 1
            case Finish():
                self.result = action.result
            case Abort():
                self.abort = action

    def _crash(self, name: str) -> None:
        """The process is gone; the kernel's word comes after what it had sent, or before some."""
        actor = self.actors[name]
        if actor.dead or self.state.phase in (RunPhase.STOPPING, RunPhase.ENDED):
            return
        actor.dead = True
        self.timeline.marks.append(Mark(time=self.clock.now, what=f"{name} dies"))
        death = WorkerDied(
            worker=name,
            incarnation=actor.incarnation,
            how="was killed by signal 9 (SIGKILL)",
            log=f"logs/{name}.log",
        )
        time = self._arrival(actor.token, "up")
        if self._setting.faults.overtakes(actor.token):
            time = self.clock.now
        self.clock.at(time, lambda: self._post(death))

    def _book_waits(self) -> None:
        """At a step's turns everybody begins to wait for something else."""
        step_now = self.state.steps[0] if self.state.steps else None
        phase = (step_now.order, step_now.part, step_now.phase) if step_now else None
        if phase != self._phase:
            self._phase = phase
            for actor in self.actors.values():
                actor.account()
            self.training = step_now is not None and step_now.variant == 0

    def _forget_waits(self) -> None:
        """Starting up is no stall."""
        for actor in self.actors.values():
            actor.account()
            actor.waits.clear()

    def slowness(self, worker: str) -> float:
        return self._setting.faults.slowness(worker, self.clock.now)

    def cores_of(self, worker: Worker) -> tuple[Cores, ...]:
        """What each rank of the worker computes on: its device, or the cores of its node."""
        places = worker.group.places
        ranks = max(1, len(places) // worker.group.replicas)
        first = worker.index * ranks % len(places)
        return tuple(
            self.cores.get((place.node, place.device)) or self.cores[(place.node, -1)]
            for place in places[first : first + ranks]
        )

    def want(self, stream: str, variant: int, samples: tuple[int, ...]) -> Want:
        """The block of a unit in a stream; a gradient is as large as what it is the gradient of."""
        made = stream.removeprefix("gradient/")
        records = sum(self.workload.records(made, variant, sample) for sample in samples)
        size = self._record_bytes.get(made, 1)
        return Want(stream=stream, records=records, bytes=max(1, records * size))

    def sends_gradient(self, stream: str) -> bool:
        """Whether a trainer that reads the stream sends its gradient back."""
        made_by = self.plan.producer(stream)
        return made_by.kind == "apply" and self.state.topology.gradient_source(made_by) is not None

    def weight_bytes(self, module: str) -> int:
        """Of one version of a module."""
        return self._record_bytes.get(f"{module}.weights", 1)


def _mark(progress: Progress) -> str:
    name = type(progress).__name__
    number = getattr(progress, "step", None)
    return name if number is None else f"{name} {number}"


def _cores(plan: Plan, clock: Clock, background: float) -> dict[tuple[str, int], Cores]:
    """Per node its cores, and one for each accelerator; CPU devices are the node's cores."""
    found: dict[tuple[str, int], Cores] = {}
    for node in plan.cluster.nodes:
        found[(node.name, -1)] = Cores(clock, max(1, node.cores), background)
        if plan.cluster.kind(node.device).kind != "cpu":
            for device in range(node.devices):
                found[(node.name, device)] = Cores(clock, 1.0)
    return found
