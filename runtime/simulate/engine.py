"""An engine in virtual time: continuous batching over slots, as the built-in engine does it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.messages import Free, Generate, Generated, Load, Loaded, Stop, Stopped
from flowgraph.runtime.simulate.actor import Actor

if TYPE_CHECKING:
    from flowgraph.runtime.orchestrator.state import Worker
    from flowgraph.runtime.simulate.world import World

BURST = 4
"""Tokens that running calls may get before the engine looks at its messages again."""


@dataclass(slots=True)
class Running:
    """A call in a slot. left: tokens that it has yet to get."""

    origin: str
    id: int
    tokens: int
    prompt: int
    left: int


class SimEngine(Actor):
    """A prefill gives each admitted call its first token; every iteration gives all one more."""

    def __init__(self, world: World, worker: Worker) -> None:
        super().__init__(world, worker)
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []
        self._times = world.times.engines[worker.group.name]
        self._spent = 0.0  # seconds of work since the last `Generated`
        self.most_waiting = 0

    def take(self) -> None:
        while self.inbox:
            message = self.inbox.popleft()
            match message:
                case Generate():
                    for id, prompt, response in message.calls:
                        call = Running(message.origin, id, response, prompt, response)
                        self._waiting.append(call)
                case Load():
                    self._load(message)
                    return
                case Free():
                    self.free(message)
                case Stop():
                    self.send(Stopped(worker=self.name, digest="", initial_digest=""))
                case _:
                    raise InternalError(f"an engine was sent a {type(message).__name__}")
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        self._advance()

    def waiting_for(self) -> str:
        return "the update" if self.world.updating else "calls"

    def _load(self, message: Load) -> None:
        self.world.blocks.read(message.weights)
        seconds = self._times.load_s

        def loaded() -> None:
            self.send(Loaded(worker=self.name, version=message.version, busy_s=seconds))
            self._advance()

        self.work(seconds, "load", loaded)

    def _advance(self) -> None:
        """Admit what fits, then decode until something finishes or a burst is over."""
        room = self.worker.group.slots - len(self._running)
        admitted = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        if not admitted and not self._running:
            return
        seconds = 0.0
        if admitted:
            seconds += self._times.prefill(sum(call.prompt for call in admitted))
            for call in admitted:
                call.left -= 1
            self._running += admitted
        alive = [call for call in self._running if call.left > 0]
        if alive:
            ended = len(alive) < len(self._running)
            burst = 1 if self.world.exact or self._waiting or ended else BURST
            count = min(burst, min(call.left for call in alive))
            rows = self.worker.group.slots if self.world.exact else len(alive)
            seconds += count * self._times.iteration(rows)
            for call in alive:
                call.left -= count
        self._spent += seconds
        self.work(seconds, "rollout", self._collect)

    def _collect(self) -> None:
        """Hand finished calls back, to each origin its own."""
        answers: dict[str, list[tuple[int]]] = {}
        tokens = 0
        for call in self._running:
            if call.left == 0:
                answers.setdefault(call.origin, []).append((call.id,))
                tokens += call.tokens
        self._running = [call for call in self._running if call.left > 0]
        for origin, completions in answers.items():
            message = Generated(
                worker=self.name,
                origin=origin,
                completions=tuple(completions),
                tokens=tokens,
                busy_s=self._spent,
            )
            self.send(message)
            self._spent, tokens = 0.0, 0
        if not self.inbox:
            self._advance()
