"""Workers that answer at once, so that only the core's own time is left to measure.

The graph is a source and a trainer that takes one unit at a time. A record goes through eight
record events: in each of the two tasks it is admitted, becomes ready, is leased, is acked.
"""

import time
from collections import deque
from dataclasses import dataclass, replace

from flowgraph.ir.plan import Plan
from flowgraph.runtime.garbage import seldom_collected
from flowgraph.runtime.messages import (
    Done,
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
from flowgraph.runtime.orchestrator.events import Action, Finish, Send, Started
from flowgraph.runtime.orchestrator.state import State, new_state

EVENTS_A_RECORD = 8
"""Admitted, ready, leased and acked, in two tasks."""

WINDOW = 512
"""Events that are timed together: the clock itself must not be measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """seconds: processor time of the core for `records` records from their admission to the ack."""

    records: int
    seconds: float

    @property
    def events_per_second(self) -> float:
        return self.records * EVENTS_A_RECORD / self.seconds


def measure(plan: Plan, *, records: int, of: int, steps: int = 1) -> Figure:
    """Run `steps` steps of `records` samples, all in flight at once, in events of `of` records."""
    schedule = replace(plan.schedule, batch=records, unit=of, ahead=0)
    state = new_state(replace(plan, schedule=schedule), RunOptions(run_dir="run", steps=steps))
    waiting: deque[Message] = deque(
        Ready(worker=name, pid=1, sizes={"0": -1}) for name in state.workers
    )
    with seldom_collected():  # as in a run
        seconds = _timed(state, [Started()], waiting)
        while waiting:
            window = [waiting.popleft() for _ in range(min(WINDOW, len(waiting)))]
            seconds += _timed(state, window, waiting)
    return Figure(records * steps, seconds)


def _timed(state: State, events: list[Started] | list[Message], waiting: deque[Message]) -> float:
    actions: list[Action] = []
    began = time.process_time()
    for event in events:
        actions += step(state, event, 0.0)
    seconds = time.process_time() - began
    for action in actions:
        if isinstance(action, Send):
            answer = _answer(state, action.worker, action.message)
            if answer is not None:
                waiting.append(answer)
        elif isinstance(action, Finish):
            waiting.clear()
    return seconds


def _answer(state: State, worker: str, message: Message) -> Message | None:
    match message:
        case Run():
            handles = {s: tuple(map(_handle, message.units)) for s in message.outputs}
            return Done(
                worker=worker,
                item=message.item,
                outputs=handles,
                sizes={stream: (1,) * len(message.units) for stream in message.outputs},
                weights=(1.0,) * len(message.units),
                metrics={},
                kept=(),
                dropped=(),
                tokens=1,
                busy_s=0.0,
            )
        case Update():
            return Updated(
                worker=worker,
                version=message.version,
                metrics={},
                weights=None,
                digest="",
                busy_s=0.0,
            )
        case Stop():
            return Stopped(worker=worker, digest="", initial_digest="")
        case _:
            return None


def _handle(unit: int) -> PlainHandle:
    return ("host-0", 1, 3, unit * 64, 64, unit + 1, 1, ())
