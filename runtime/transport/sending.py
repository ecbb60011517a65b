"""The sender's side of all fetches: a state machine without sockets, memory or clocks.

Guarantees: no chunk is sent without credit, and no more than `budget` chunks that nobody has
acknowledged are on the wire, over all fetches; fetches take turns. A receiver that is gone costs
nothing after `idle_s`: its fetch is forgotten. Nothing here waits: what may be sent is asked for.
"""

from dataclasses import dataclass

from flowgraph.runtime.transport.wire import Credit, Open


@dataclass(frozen=True, slots=True)
class Key:
    """A receiver's fetch: who (as the socket names it), and its own number."""

    peer: bytes
    fetch: int


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """One fetch. Chunks below `acknowledged` are there, those below `next` are sent."""

    attempt: int
    chunks: int
    acknowledged: int
    next: int
    upto: int
    joined: bool
    heard: float

    @property
    def in_flight(self) -> int:
        return self.next - self.acknowledged


@dataclass(frozen=True, slots=True)
class Order:
    """Send this chunk now."""

    key: Key
    attempt: int
    index: int


class Outbox:
    """budget: chunks on the wire in all. idle_s: how long a fetch may say nothing."""

    def __init__(self, budget: int, idle_s: float = 30.0) -> None:
        self._budget = budget
        self._idle_s = idle_s
        self._fetches: dict[Key, Outgoing] = {}  # in turn: first is next

    def __len__(self) -> int:
        return len(self._fetches)

    @property
    def in_flight(self) -> int:
        """Chunks sent that nobody has acknowledged."""
        return sum(outgoing.in_flight for outgoing in self._fetches.values())

    def open(self, key: Key, message: Open, chunks: int, now: float, *, joined: bool) -> bool:
        """Begin, or begin again at `start`. False for a late message of an older attempt.

        joined: chunks may go at once; else once `join` was called.
        """
        old = self._fetches.get(key)
        if old is not None and old.attempt >= message.attempt:
            return False
        start = min(message.start, chunks)
        self._fetches[key] = Outgoing(
            attempt=message.attempt,
            chunks=chunks,
            acknowledged=start,
            next=start,
            upto=min(message.upto, chunks),
            joined=joined,
            heard=now,
        )
        return True

    def join(self, key: Key, attempt: int, now: float) -> None:
        """The receiver is there to take the chunks of this attempt."""
        outgoing = self._fetches.get(key)
        if outgoing is not None and outgoing.attempt == attempt:
            outgoing.joined = True
            outgoing.heard = now

    def credit(self, key: Key, message: Credit, now: float) -> None:
        """Never takes credit back: messages of an attempt may come in any order."""
        outgoing = self._fetches.get(key)
        if outgoing is None or outgoing.attempt != message.attempt:
            return
        outgoing.heard = now
        received = min(message.received, outgoing.next)
        outgoing.acknowledged = max(outgoing.acknowledged, received)
        outgoing.upto = max(outgoing.upto, min(message.upto, outgoing.chunks))

    def close(self, key: Key) -> None:
        """The receiver wants no more, or cannot be reached."""
        self._fetches.pop(key, None)

    def take(self) -> Order | None:
        """The next chunk to send, counted as sent; None when nothing may be sent now."""
        if self.in_flight >= self._budget:
            return None
        for key, outgoing in self._fetches.items():
            if outgoing.joined and outgoing.next < outgoing.upto:
                order = Order(key, outgoing.attempt, outgoing.next)
                outgoing.next += 1
                self._fetches[key] = self._fetches.pop(key)  # the others first
                return order
        return None

    def expire(self, now: float) -> list[Key]:
        """Forget fetches whose receiver has been silent for too long."""
        gone = [key for key, o in self._fetches.items() if now - o.heard >= self._idle_s]
        for key in gone:
            del self._fetches[key]
        return gone

    def due(self) -> float | None:
        """When `expire` has something to do next; None without fetches."""
        if not self._fetches:
            return None
        return min(outgoing.heard for outgoing in self._fetches.values()) + self._idle_s
