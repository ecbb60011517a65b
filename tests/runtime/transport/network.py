"""A fetch over a network that misbehaves as it is told, without sockets, threads or clocks.

The block is chunks of which only the numbers exist: bytes are stood in for by their digests,
so that blocks of any size cost nothing.
"""

from collections import deque
from dataclasses import dataclass, field

from flowgraph.runtime.transport.chunks import CHUNK, DIGEST
from flowgraph.runtime.transport.receiving import Action, Fetch, Join, Limits, Say
from flowgraph.runtime.transport.sending import Key, Outbox
from flowgraph.runtime.transport.wire import Close, Credit, Open, Opened, Refused

HANDLE = ("host-0", 12, 3, 64, 168, 1 << 40, 2, (2, ()))
KEY = Key(b"reader", 1)
LIMITS = Limits(quiet_s=1.0, patience_s=10.0, bad=3)


def digest_of(index: int) -> bytes:
    return index.to_bytes(DIGEST, "big")


DAMAGED = b"\xff" * DIGEST


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk on the wire."""

    attempt: int
    index: int
    digest: bytes


ToReader = Opened | Refused | Piece


@dataclass(slots=True, kw_only=True)
class Network:
    """Both sides, and what is on the wire between them. Every step is one thing that happens."""

    chunks: int
    window: int = 4
    budget: int = 8
    trusted: bool = False
    received: int = 0
    now: float = 0.0
    alive: bool = True
    gone: bool = False  # the block was freed
    to_sender: deque[Open | Credit | Close | Join] = field(default_factory=deque)
    to_reader: deque[ToReader] = field(default_factory=deque)
    written: list[int] = field(default_factory=list)
    outbox: Outbox = field(init=False)
    fetch: Fetch = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.budget, idle_s=5.0)
        self.written = list(range(self.received))
        self.fetch = self._new_fetch(self.received)
        self._act(self.fetch.begin(self.now))

    def _new_fetch(self, received: int) -> Fetch:
        return Fetch(
            fetch=KEY.fetch,
            block=HANDLE,
            nbytes=self.chunks * CHUNK,
            whose="host-0 at tcp://10.0.0.1:5",
            window=self.window,
            limits=LIMITS,
            received=received,
        )

    def sender_takes(self) -> bool:
        """The sender handles one message; False if there is none."""
        if not self.to_sender:
            return False
        message = self.to_sender.popleft()
        if not self.alive:
            return True
        match message:
            case Open() if self.gone:
                self.to_reader.append(Refused(fetch=KEY.fetch, why="StaleHandle: it was freed"))
            case Open():
                joined = not self.trusted
                if self.outbox.open(KEY, message, self.chunks, self.now, joined=joined):
                    self.to_reader.append(self._opened(message))
            case Credit():
                self.outbox.credit(KEY, message, self.now)
            case Close():
                self.outbox.close(KEY)
            case Join():
                self.outbox.join(KEY, int.from_bytes(message.token, "big"), self.now)
        return True

    def sender_sends(self) -> bool:
        """The sender puts one chunk on the wire, if it may."""
        order = self.outbox.take() if self.alive else None
        if order is None:
            return False
        self.to_reader.append(Piece(order.attempt, order.index, digest_of(order.index)))
        return True

    def reader_takes(self) -> bool:
        if not self.to_reader:
            return False
        message = self.to_reader.popleft()
        match message:
            case Opened():
                self._act(self.fetch.opened(message, self.now))
            case Refused():
                self._act(self.fetch.refused(message))
            case Piece():
                if self.fetch.place(message.index) is not None and message.digest != DAMAGED:
                    self.written.append(message.index)
                found = self.fetch.arrived(message.attempt, message.index, message.digest, self.now)
                self._act(found)
        return True

    def time_passes(self) -> None:
        """To the next moment at which either side has something to do by itself."""
        due = [self.outbox.due()] if self.alive else []
        due += [] if self.fetch.over else [self.fetch.due()]
        moments = [moment for moment in due if moment is not None]
        self.now = max(self.now, min(moments, default=self.now))
        self.outbox.expire(self.now)
        self._act(self.fetch.tick(self.now))

    def sender_dies(self) -> None:
        """With all it knew, and what it had sent but the network had not delivered."""
        self.alive = False
        self.to_reader.clear()

    def sender_restarts(self) -> None:
        """Another process at the same address, that can read the same block."""
        self.alive = True
        self.to_sender.clear()
        self.outbox = Outbox(self.budget, idle_s=5.0)

    def reader_restarts(self) -> None:
        """Another process that was told how far the block has come."""
        self.to_reader.clear()
        attempt = self.fetch.attempt
        self.fetch = self._new_fetch(self.fetch.received)
        self.fetch.attempt = attempt  # as the same number of fetch; a new one starts at 0
        self._act(self.fetch.begin(self.now))

    def lose(self) -> None:
        """The oldest thing on the wire to the reader never arrives."""
        if self.to_reader:
            self.to_reader.popleft()

    def damage(self) -> None:
        if self.to_reader and isinstance(self.to_reader[0], Piece):
            piece = self.to_reader[0]
            self.to_reader[0] = Piece(piece.attempt, piece.index, DAMAGED)

    def double(self) -> None:
        if self.to_reader:
            self.to_reader.append(self.to_reader[0])

    def swap(self) -> None:
        if len(self.to_reader) > 1:
            first, second = self.to_reader.popleft(), self.to_reader.popleft()
            self.to_reader.extendleft([first, second])

    def run(self, most: int = 100_000) -> None:
        """Nothing goes wrong any more: on to the end, in fair turns."""
        for _ in range(most):
            if self.fetch.over and not self.to_sender:
                return
            moved = [self.sender_takes(), self.sender_sends(), self.reader_takes()]
            if not any(moved):
                self.time_passes()
        raise AssertionError("the fetch does not end")

    def check(self) -> None:
        """What must hold after every event."""
        assert 0 <= self.fetch.received <= self.chunks
        assert self.outbox.in_flight <= self.budget
        assert self.written[: self.fetch.received] == list(range(self.fetch.received))

    def _opened(self, message: Open) -> Opened:
        return Opened(
            fetch=KEY.fetch,
            attempt=message.attempt,
            chunk_bytes=CHUNK,
            digests=b"".join(map(digest_of, range(self.chunks))),
            bulk="tcp://10.0.0.1:6" if self.trusted else "",
            token=message.attempt.to_bytes(8, "big"),
        )

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            self.to_sender.append(action.message if isinstance(action, Say) else action)
