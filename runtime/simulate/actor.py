"""What all simulated workers have in common: one thing at a time, a pool, and what they wait for.

A worker takes messages when it is idle, works for as long as its times say, writes its blocks (and
waits where its pool is full, taking nothing but `Free` meanwhile), and answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowgraph.runtime.messages import Free, FromWorker, Full, Message, PlainHandle, Stop
from flowgraph.runtime.simulate.blocks import Want
from flowgraph.runtime.simulate.timeline import Span

if TYPE_CHECKING:
    from flowgraph.runtime.orchestrator.state import Worker
    from flowgraph.runtime.simulate.world import World

Handles = list[PlainHandle]

ROUNDING_S = 1e-9
"""Differences of times that are no waiting."""


class Actor:
    """A worker in virtual time. Subclasses take messages in `take`.

    waits: seconds by cause, while a training step is the present one. worked: seconds of work;
    trained: those of them in training steps.
    """

    def __init__(self, world: World, worker: Worker) -> None:
        self.world = world
        self.worker = worker
        self.name = worker.name
        self.incarnation = worker.incarnation
        self.token = worker.token
        self.inbox: deque[Message] = deque()
        self.dead = False
        self._cores = world.cores_of(worker)
        self.waits: dict[str, float] = {}
        self.worked = self.trained = 0.0
        self._busy = False
        self._wants: deque[Want] | None = None
        self._written: Handles = []
        self._then: Callable[[Handles], None] | None = None
        self._freed = 0  # `Free` messages that were taken
        self._idle_since = world.clock.now
        self._cause = "work"

    def receive(self, message: Message) -> None:
        """A message has come."""
        if self.dead:
            return
        self.inbox.append(message)
        if self._wants is not None:
            if isinstance(message, Stop):
                self._wants = None  # nobody wants what it makes any more
                self.go()
            else:
                self._make_room()
        elif not self._busy:
            self.go()

    def go(self) -> None:
        """Work on what is there, until nothing is, or something takes time."""
        self.account()
        while not self._busy and self._wants is None and self.inbox and not self.dead:
            self.take()
        if self._wants is None:
            self._cause = self.waiting_for()

    def take(self) -> None:
        """Take at least one message from the inbox."""
        raise NotImplementedError

    def waiting_for(self) -> str:
        """What an idle worker of this kind waits for now."""
        raise NotImplementedError

    def work(self, seconds: float, kind: str, then: Callable[[], None], *, step: int = -1) -> None:
        """Be busy for that many seconds of a core or device, then go on."""
        self.account()
        self._busy = True
        began = self.world.clock.now
        seconds *= self.world.slowness(self.name)
        self.worked += seconds
        self.trained += seconds if self.world.training else 0.0

        def ended() -> None:
            if self.dead:
                return
            now = self.world.clock.now
            self.world.timeline.spans.append(
                Span(worker=self.name, kind=kind, start=began, end=now, work=seconds, step=step)
            )
            self._wait("shared cores", now - began - seconds)
            self._idle_since, self._busy = now, False
            then()
            self.go()

        # All ranks work on it at once; it is done when the last one is.
        left = len(self._cores)

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                ended()

        for cores in self._cores:
            cores.start(seconds, one_ended)

    def write(self, wants: Sequence[Want], then: Callable[[Handles], None]) -> None:
        """Write blocks, waiting for room where there is none, and hand their handles on."""
        self._wants, self._then, self._written = deque(wants), then, []
        self._idle_since = self.world.clock.now
        self._take_frees()
        if any(isinstance(message, Stop) for message in self.inbox):
            self._wants = None  # nobody wants it any more
        else:
            self._write()

    def _write(self) -> None:
        assert self._wants is not None
        while self._wants:
            handle = self.world.blocks.write(self.token, self._wants[0])
            if handle is None:
                self._cause = "room in the pool"
                self._say_full(self._wants[0])
                return
            self._written.append(handle)
            self._wants.popleft()
        self.account()
        then, self._wants = self._then, None
        assert then is not None
        then(self._written)

    def _say_full(self, want: Want) -> None:
        full = Full(worker=self.name, stream=want.stream, nbytes=want.bytes, freed=self._freed)
        self.send(full)

    def free(self, message: Free) -> None:
        """Readers are done with some of its blocks."""
        self._freed += 1
        self.world.blocks.free(self.token, message)

    def _make_room(self) -> None:
        """Only `Free` is taken while a block waits; everything else keeps its place."""
        if not self._take_frees():
            return
        self._write()
        if self._wants is None:
            self.go()

    def _take_frees(self) -> bool:
        """Whether any had come."""
        freed = [message for message in self.inbox if isinstance(message, Free)]
        if freed:
            self.inbox = deque(m for m in self.inbox if not isinstance(m, Free))
        for message in freed:
            self.free(message)
        return bool(freed)

    def send(self, message: FromWorker) -> None:
        if self.incarnation:
            message = replace(message, incarnation=self.incarnation)
        self.world.up(self.token, message)

    def succeed(self, lost: Actor) -> None:
        """Go on with the books of the worker's lost process."""
        self.waits, self.worked, self.trained = lost.waits, lost.worked, lost.trained

    def account(self) -> None:
        """Book the time since the last change to what was waited for."""
        now = self.world.clock.now
        if not self._busy:
            self._wait(self._cause, now - self._idle_since)
        self._idle_since = now
        if not self._busy and self._wants is None:
            self._cause = self.waiting_for()

    def _wait(self, cause: str, seconds: float) -> None:
        if seconds > ROUNDING_S and self.world.training:
            self.waits[cause] = self.waits.get(cause, 0.0) + seconds

    def stuck(self) -> str:
        """A sentence's part: what it waits for, when nothing will ever come."""
        return f"{self.name} waits for {self._cause}"
