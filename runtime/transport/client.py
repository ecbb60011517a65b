"""Fetches blocks of other hosts: sockets and memory around `receiving.Fetch`.

Guarantees: every fetch that was started ends, with its bytes in place and verified or with a named
error, at most `patience_s` after its last progress; all fetches together have at most
`budget_bytes` on the wire; those beyond wait their turn.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zmq

from flowgraph.ir.errors import ConfigurationError, RunFailed
from flowgraph.runtime.messages import PlainHandle
from flowgraph.runtime.transport.chunks import CHUNK, digest
from flowgraph.runtime.transport.failures import PeerLost
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.receiving import Action, Fetch, Join, Limits, Say
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sockets import Context, Socket, make_socket, present_keys
from flowgraph.runtime.transport.wire import Chunk, Opened, Refused, decode, encode
from flowgraph.runtime.wire_types import BadMessage

PATIENT = Limits()

LEAVE_MS = 200
"""How long a closing client may still say that it gives up; servers notice without, later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a block can be had: the server's endpoint and, over tcp, its name in the keyring."""

    endpoint: str
    server: str
    block: PlainHandle


@dataclass(frozen=True, slots=True)
class Finished:
    """A fetch ended; its error, or None when all bytes are there."""

    fetch: int
    error: RunFailed | None


class BlockClient:
    """window: chunks of one fetch on the wire. budget_bytes: of all of them."""

    def __init__(
        self,
        keyring: Keyring | None = None,
        *,
        budget_bytes: int = 1 << 26,
        window: int = 32,
        limits: Limits = PATIENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refused = Refusals()
        self._keyring = keyring
        self._slots = max(1, budget_bytes // CHUNK)
        self._window = min(window, self._slots)
        self._limits = limits
        self._clock = clock
        self._context: Context = zmq.Context()
        self._poller = zmq.Poller()
        self._control: dict[str, Socket] = {}  # by endpoint
        self._bulk: dict[str, Socket] = {}
        self._sources: dict[int, Source] = {}
        self._waiting: deque[int] = deque()
        self._running: dict[int, Fetch] = {}
        self._fetches: dict[int, tuple[Fetch, memoryview]] = {}
        self._finished: list[Finished] = []
        self._next = 0

    @property
    def in_flight_bytes(self) -> int:
        """The most that may be on the wire for the fetches that run now."""
        return sum(fetch.window for fetch in self._running.values()) * CHUNK

    def also_wake_on(self, fd: int) -> None:
        """`turn` ends its waiting when this descriptor is readable, too."""
        self._poller.register(fd, zmq.POLLIN)

    def start(self, source: Source, into: memoryview, received: int = 0) -> int:
        """Fetch the block into writable memory of its size; the fetch's number, for `turn`.

        received: chunks that are there already, from a fetch that was interrupted. Raises
        ConfigurationError for tcp without keys.
        """
        number, self._next = self._next, self._next + 1
        fetch = Fetch(
            fetch=number,
            block=source.block,
            nbytes=into.nbytes,
            whose=f"{source.server} at {source.endpoint}",
            window=self._window,
            limits=self._limits,
            received=received,
        )
        self._connect(source)
        self._sources[number] = source
        self._fetches[number] = (fetch, into)
        self._waiting.append(number)
        self._begin()
        return number

    def turn(self, timeout_ms: int) -> list[Finished]:
        """Take what has come; waits up to the time for something. The fetches that ended."""
        now = self._clock()
        due = min((fetch.due() for fetch in self._running.values()), default=None)
        wait = timeout_ms if due is None else min(timeout_ms, int((due - now) * 1000.0) + 1)
        for ready, _ in self._poller.poll(max(0, wait)):
            if not isinstance(ready, int):  # a descriptor has nothing for us
                self._drain(ready)
        for fetch in list(self._running.values()):
            self._act(fetch, fetch.tick(self._clock()))
        self._begin()
        finished, self._finished = self._finished, []
        return finished

    def fetch(self, source: Source, into: memoryview) -> None:
        """Fetch one block and wait for it: bounded by the limits' patience. Raises its error."""
        number = self.start(source, into)
        others: list[Finished] = []
        while True:
            for ended in self.turn(1000):
                if ended.fetch != number:
                    others.append(ended)
                    continue
                self._finished = others + self._finished
                if ended.error is not None:
                    raise ended.error
                return

    def received(self, number: int) -> int:
        """Chunks of a running fetch that are in place: where it would resume."""
        return self._fetches[number][0].received

    def close(self) -> None:
        """Gives up what is not done; the servers are told."""
        for fetch in list(self._running.values()):
            self._act(fetch, fetch.cancel(PeerLost(f"{fetch.whose}: this side was closed")))
        for socket in (*self._control.values(), *self._bulk.values()):
            socket.close(LEAVE_MS)
        self._context.term()

    def _connect(self, source: Source) -> None:
        if source.endpoint in self._control:
            return
        socket = make_socket(self._context, zmq.DEALER)
        if not source.endpoint.startswith("ipc://"):
            peers: Mapping[str, bytes] = {} if self._keyring is None else self._keyring.peers
            if self._keyring is None or source.server not in peers:
                socket.close(0)
                raise ConfigurationError(f"no key of '{source.server}' at {source.endpoint}")
            present_keys(socket, self._keyring.own, peers[source.server])
        socket.connect(source.endpoint)
        self._control[source.endpoint] = socket
        self._poller.register(socket, zmq.POLLIN)

    def _begin(self) -> None:
        while self._waiting:
            fetch, _ = self._fetches[self._waiting[0]]
            busy = sum(running.window for running in self._running.values())
            if busy + fetch.window > self._slots:
                return
            self._waiting.popleft()
            self._running[fetch.fetch] = fetch
            self._act(fetch, fetch.begin(self._clock()))

    def _act(self, fetch: Fetch, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Say():
                    control = self._control[self._sources[fetch.fetch].endpoint]
                    _send(control, encode(action.message))
                case Join():
                    _send(self._bulk_of(action.endpoint), action.token)
        if fetch.over and fetch.fetch in self._running:
            del self._running[fetch.fetch], self._fetches[fetch.fetch]
            del self._sources[fetch.fetch]
            self._finished.append(Finished(fetch.fetch, fetch.error))

    def _bulk_of(self, endpoint: str) -> Socket:
        if endpoint not in self._bulk:
            socket = make_socket(self._context, zmq.DEALER)
            socket.connect(endpoint)
            self._bulk[endpoint] = socket
            self._poller.register(socket, zmq.POLLIN)
        return self._bulk[endpoint]

    def _drain(self, socket: Socket) -> None:
        while True:
            try:
                data = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._take(socket, data)
            except BadMessage as error:
                self.refused.add("bad message", str(error))
            while socket.getsockopt(zmq.RCVMORE):  # frames that nobody wanted
                socket.recv(copy=False)

    def _take(self, socket: Socket, data: bytes) -> None:
        message = decode(data)
        fetch = self._running.get(message.fetch)
        if fetch is None:
            return  # over already
        match message:
            case Opened():
                self._act(fetch, fetch.opened(message, self._clock()))
            case Refused():
                self._act(fetch, fetch.refused(message))
            case Chunk():
                self._chunk(socket, fetch, message)
            case _:
                raise BadMessage(f"a {type(message).__name__} is not for a receiver")

    def _chunk(self, socket: Socket, fetch: Fetch, message: Chunk) -> None:
        """The bytes go from the socket's buffer to their place, and are digested there."""
        if not socket.getsockopt(zmq.RCVMORE):
            raise BadMessage("a Chunk without bytes")
        place = fetch.place(message.index)
        found = b""
        if place is not None:
            start, stop = place
            into = self._fetches[fetch.fetch][1][start:stop]
            if socket.recv_into(into) == stop - start:  # a longer one is cut off, and damaged
                found = digest(into)
        self._act(fetch, fetch.arrived(message.attempt, message.index, found, self._clock()))


def _send(socket: Socket, data: bytes) -> None:
    """Never waits: a server that shut us out takes nothing, and the fetch's patience ends it."""
    try:
        socket.send(data, zmq.NOBLOCK)
    except zmq.Again:
        return
