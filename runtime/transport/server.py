"""Sends blocks to whoever may have them: sockets around `sending.Outbox`.

Guarantees: never waits for a receiver; a bad message, a stranger or a lost receiver is counted or
forgotten, never an error; memory on the wire is at most `budget_bytes`. Runs wherever its owner
calls `turn`: a thread beside a worker's work, or a process of its own.
"""

import secrets
import time
from collections.abc import Callable
from typing import Protocol

import zmq

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.failures import OwnerGone, StaleHandle
from flowgraph.runtime.pool import Handle
from flowgraph.runtime.transport.chunks import CHUNK, chunks_in, span
from flowgraph.runtime.transport.door import Door
from flowgraph.runtime.transport.gate import Gate
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sending import Key, Order, Outbox
from flowgraph.runtime.transport.sockets import Context, Socket, make_socket, require_keys
from flowgraph.runtime.transport.wire import (
    MAX_BYTES,
    Chunk,
    Close,
    Credit,
    Open,
    Opened,
    Refused,
    decode,
    encode,
)
from flowgraph.runtime.wire_types import BadMessage

TOKEN = 16
"""Bytes of the secret by which a receiver collects its chunks in the clear."""

GREETING = 1 << 10
"""The longest frame on the socket in the clear: a token, or ZeroMQ's own greeting."""

AT_ONCE = 8
"""Chunks sent before messages are looked at again."""


class Blocks(Protocol):
    """What a server sends from; `PoolBlocks` is the one for pools."""

    def memory(self, handle: Handle) -> memoryview: ...

    def check(self, handle: Handle) -> None: ...

    def digests(self, handle: Handle) -> bytes: ...


class BlockServer:
    """endpoint, bulk: as bound. keyring: who it is and who may ask; without one, ipc only.

    trusted: the network may carry records in the clear; digests and credits stay on the
    authenticated socket. Raises ConfigurationError for tcp without keys, or a taken address.
    """

    def __init__(
        self,
        blocks: Blocks,
        listen: str,
        keyring: Keyring | None = None,
        *,
        trusted: bool = False,
        budget_bytes: int = 1 << 26,
        idle_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not listen.startswith("ipc://") and keyring is None:
            raise ConfigurationError(f"{listen} needs keys: nobody on a network is trusted")
        self.refused = Refusals()
        self._blocks = blocks
        self._outbox = Outbox(max(1, budget_bytes // CHUNK), idle_s)
        self._clock = clock
        self._opened: dict[Key, tuple[Handle, memoryview]] = {}
        self._tokens: dict[bytes, tuple[Key, int]] = {}
        self._routes: dict[Key, bytes] = {}  # where the chunks go, when not where the messages do
        self._context: Context = zmq.Context()
        self._control = make_socket(self._context, zmq.ROUTER, max_bytes=MAX_BYTES)
        self._control.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._bulk: Socket | None = None
        self._gate: Gate | None = None
        self._door: Door | None = None
        if keyring is not None:
            self._gate = Gate(self._context, keyring.peers, self.refused)
            require_keys(self._control, keyring.own)
            self._door = Door(self._control, self.refused)
        self.endpoint = self._bind(self._control, listen)
        self.bulk = ""
        if trusted:
            self._bulk = make_socket(self._context, zmq.ROUTER, max_bytes=GREETING)
            self._bulk.setsockopt(zmq.ROUTER_MANDATORY, 1)
            self.bulk = self._bind(self._bulk, _beside(listen))
        self._poller = zmq.Poller()
        for socket in self._sockets():
            self._poller.register(socket, zmq.POLLIN)

    @property
    def fetches(self) -> int:
        """Fetches that are remembered."""
        return len(self._outbox)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes sent that nobody has acknowledged, last chunks counted as whole ones."""
        return self._outbox.in_flight * CHUNK

    def turn(self, timeout_ms: int) -> None:
        """Handle all messages, send what may be sent; waits up to the time for something to do."""
        sent = self._send_some()
        due = self._outbox.due()
        wait = timeout_ms if due is None else min(timeout_ms, self._ms_until(due))
        readable = {socket for socket, _ in self._poller.poll(0 if sent else wait)}
        if self._gate is not None and self._gate.socket in readable:
            self._gate.answer()
        if self._door is not None and self._door.socket in readable:
            self._door.count()
        while self._control in readable and (frames := _received(self._control)) is not None:
            self._take(frames)
        while self._bulk in readable and (frames := _received(self._bulk)) is not None:
            self._collect(frames)
        for key in self._outbox.expire(self._clock()):
            self._drop(key)
        self._send_some()

    def serve(self, until: Callable[[], bool], every_ms: int = 100) -> None:
        """Turns until `until()`, which is asked at least so often."""
        while not until():
            self.turn(every_ms)

    def close(self) -> None:
        """Drops what is queued: receivers find out by themselves, and resume elsewhere or fail."""
        if self._door is not None:
            self._door.close()
        for socket in (self._control, self._bulk):
            if socket is not None:
                socket.close(0)
        if self._gate is not None:
            self._gate.close()
        self._context.term()

    def _sockets(self) -> list[Socket]:
        guards = [guard.socket for guard in (self._gate, self._door) if guard is not None]
        return [self._control, *([self._bulk] if self._bulk is not None else []), *guards]

    def _bind(self, socket: Socket, endpoint: str) -> str:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise ConfigurationError(f"cannot listen at {endpoint}: {error.strerror}") from error
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _ms_until(self, when: float) -> int:
        return max(0, int((when - self._clock()) * 1000.0) + 1)

    def _take(self, frames: list[bytes]) -> None:
        peer = frames[0]
        try:
            if len(frames) != 2:
                raise BadMessage(f"{len(frames) - 1} frames")
            message = decode(frames[1])
            match message:
                case Open():
                    self._open(Key(peer, message.fetch), message)
                case Credit():
                    self._outbox.credit(Key(peer, message.fetch), message, self._clock())
                case Close():
                    self._drop(Key(peer, message.fetch))
                case _:
                    raise BadMessage(f"a {type(message).__name__} is not for a server")
        except BadMessage as error:
            self.refused.add("bad message", str(error))

    def _open(self, key: Key, message: Open) -> None:
        try:
            handle = Handle.from_plain(message.block)
            memory, digests = self._blocks.memory(handle), self._blocks.digests(handle)
        except (StaleHandle, OwnerGone, ValueError) as error:
            self._drop(key)
            self._say(key, Refused(fetch=key.fetch, why=f"{type(error).__name__}: {error}"))
            return
        chunks = chunks_in(memory.nbytes)
        joined = self._bulk is None
        if not self._outbox.open(key, message, chunks, self._clock(), joined=joined):
            return
        self._opened[key] = (handle, memory)
        token = b""
        if self._bulk is not None:
            token = secrets.token_bytes(TOKEN)
            self._tokens = {t: v for t, v in self._tokens.items() if v[0] != key}
            self._tokens[token] = (key, message.attempt)
        answer = Opened(
            fetch=key.fetch,
            attempt=message.attempt,
            chunk_bytes=CHUNK,
            digests=digests,
            bulk=self.bulk,
            token=token,
        )
        self._say(key, answer)

    def _collect(self, frames: list[bytes]) -> None:
        """A receiver shows its token on the open socket; it works once."""
        known = self._tokens.pop(frames[1], None) if len(frames) == 2 else None
        if known is None:
            self.refused.add("unknown token", "on the socket for records in the clear")
            return
        key, attempt = known
        self._routes[key] = frames[0]
        self._outbox.join(key, attempt, self._clock())

    def _send_some(self) -> bool:
        """Whether there was anything to send."""
        for count in range(AT_ONCE):
            order = self._outbox.take()
            if order is None:
                return count > 0
            self._send(order)
        return True

    def _send(self, order: Order) -> None:
        key = order.key
        handle, memory = self._opened[key]
        try:
            self._blocks.check(handle)  # still the same block: freed ones are not read
        except (StaleHandle, OwnerGone) as error:
            self._drop(key)
            self._say(key, Refused(fetch=key.fetch, why=f"{type(error).__name__}: {error}"))
            return
        start, stop = span(order.index, memory.nbytes)
        header = encode(Chunk(fetch=key.fetch, attempt=order.attempt, index=order.index))
        socket = self._control if self._bulk is None else self._bulk
        route = self._routes.get(key, key.peer)
        try:
            socket.send(route, zmq.SNDMORE)
            socket.send(header, zmq.SNDMORE)
            socket.send(memory[start:stop], copy=False)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._drop(key)  # it is gone; if it comes back, it asks again

    def _say(self, key: Key, message: Opened | Refused) -> None:
        try:
            self._control.send_multipart([key.peer, encode(message)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self._outbox.close(key)
        self._opened.pop(key, None)
        self._routes.pop(key, None)
        self._tokens = {token: owner for token, owner in self._tokens.items() if owner[0] != key}


def _received(socket: Socket | None) -> list[bytes] | None:
    if socket is None:
        return None
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


def _beside(listen: str) -> str:
    """Where the socket in the clear is bound: the same interface, or the same folder."""
    if listen.startswith("ipc://"):
        return f"{listen}.bulk"
    return f"{listen.rpartition(':')[0]}:*"
