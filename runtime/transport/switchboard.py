"""The orchestrator's socket: every worker's line ends here, and nobody else's.

Guarantees: what `receive` gives is a well-formed message that a worker may send, from the worker it
names; all else is counted in `refused`, and never an error. Over tcp a peer needs a key of this
run, and speaks only as the name that belongs to its key.
Assumes: over ipc, that the folder is private (mode 0700): a peer there is the user.
"""

import math
import time
from collections.abc import Iterable
from pathlib import Path

import zmq

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.messages import FROM_WORKERS, MAX_BYTES, BadMessage, Message, decode
from flowgraph.runtime.transport.door import Door
from flowgraph.runtime.transport.endpoint import listen_at
from flowgraph.runtime.transport.gate import Gate
from flowgraph.runtime.transport.keys import ORCHESTRATOR, Keyring, new_keyrings
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sockets import Context, Socket, make_socket, require_keys

BEAT = b"beat"
"""First frame of a sign of life; the second names the worker. Its sender has no name of its own."""


class Switchboard:
    """ROUTER for a fixed set of workers.

    folder: private, for the ipc socket and key files. refused: where refusals are counted. listen:
    see `listen_at`. Raises ConfigurationError for a wrong one, or an address that cannot be bound.
    """

    def __init__(
        self, folder: str, workers: Iterable[str], refused: Refusals, listen: str = ""
    ) -> None:
        self.refused = refused
        self._workers = frozenset(workers)
        self._names = {name: name for name in self._workers}  # by identity on the wire
        self._identities = {name: name for name in self._workers}
        self._gone: set[str] = set()
        self._folder = Path(folder)
        self._context: Context = zmq.Context()
        self._router: Socket = make_socket(self._context, zmq.ROUTER, max_bytes=2 * MAX_BYTES)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._beats: set[str] = set()
        self._keyrings: dict[str, Keyring] = {}
        self._gate: Gate | None = None
        self._door: Door | None = None
        wanted = listen_at(listen, folder, ORCHESTRATOR)
        if wanted.startswith("tcp://"):
            self._guard()
        try:
            self._router.bind(wanted)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigurationError(f"cannot listen at {wanted}: {error.strerror}") from error
        self.endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    def _guard(self) -> None:
        """Keys for everybody, in files that only their user reads; nobody else gets in."""
        self._keyrings = new_keyrings([ORCHESTRATOR, *sorted(self._workers)])
        for name in self._workers:
            self._keyrings[name].write(self._folder)
        mine = self._keyrings[ORCHESTRATOR]
        allowed = {name: mine.peers[name] for name in self._workers}
        self._gate = Gate(self._context, allowed, self.refused)
        require_keys(self._router, mine.own)
        self._door = Door(self._router, self.refused)

    def key_file(self, worker: str) -> str:
        """The worker's key file; empty over ipc."""
        return str(self._folder / f"{worker}.key") if self._keyrings else ""

    def register(self, poller: zmq.Poller) -> None:
        """Wake the poller for whatever `receive` has to handle."""
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)

    def receive(self, timeout_ms: int) -> tuple[str, Message, bytes] | None:
        """The next message (worker, message, its bytes); None if there is none in that time.

        Refused peers and messages do not end the waiting, nor do they prolong it.
        """
        until = time.monotonic() + timeout_ms / 1000.0
        while True:
            self._admit()
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._wait(left)
                continue
            accepted = self._accept(frames)
            if accepted is not None:
                return accepted

    def beats(self) -> set[str]:
        """Workers that gave a sign of life since the last call, as far as `receive` has read."""
        beats, self._beats = self._beats, set()
        return beats

    def replace(self, worker: str, identity: str) -> None:
        """The worker's process is gone; its next one calls itself `identity`."""
        before = self._identities[worker]
        del self._names[before]
        self._gone.add(before)
        self._names[identity] = worker
        self._identities[worker] = identity

    def send(self, worker: str, data: bytes) -> None:
        """Queue for the worker; without a connection (its process is gone) it is dropped."""
        try:
            self._router.send_multipart([self._identities[worker].encode(), data])
        except zmq.ZMQError as error:
            # Its connection is gone: so is the process, and the launcher is about to say so.
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def close(self) -> None:
        """Drops what is queued."""
        if self._door is not None:
            self._door.close()
        if self._gate is not None:
            self._gate.close()
        self._router.close(0)
        self._context.term()

    def _sockets(self) -> list[Socket]:
        guards = [guard.socket for guard in (self._gate, self._door) if guard is not None]
        return [self._router, *guards]

    def _admit(self) -> None:
        if self._gate is not None:
            self._gate.answer()
        if self._door is not None:
            self._door.count()

    def _wait(self, seconds: float) -> None:
        poller = zmq.Poller()
        self.register(poller)
        poller.poll(math.ceil(seconds * 1000.0))

    def _heard(self, frame: zmq.Frame) -> None:
        name = frame.bytes.decode(errors="replace")
        if name not in self._workers:
            self.refused.add("unknown identity", f"a heartbeat of {name!r}")
        elif self._gate is not None and frame.get("User-Id") != name:
            self.refused.add("false identity", f"'{frame.get('User-Id')}' beat as '{name}'")
        else:
            self._beats.add(name)

    def _accept(self, frames: list[zmq.Frame]) -> tuple[str, Message, bytes] | None:
        if len(frames) == 3 and frames[1].bytes == BEAT:
            self._heard(frames[2])
            return None
        identity = frames[0].bytes.decode(errors="replace")
        name = self._names.get(identity)
        if name is None:
            known = "late message" if identity in self._gone else "unknown identity"
            self.refused.add(known, f"a peer that calls itself {identity!r}")
            return None
        if self._gate is not None and frames[-1].get("User-Id") != name:
            self.refused.add("false identity", f"'{frames[-1].get('User-Id')}' spoke as '{name}'")
            return None
        if len(frames) != 2:
            self.refused.add("bad message", f"{len(frames) - 1} frames from '{name}'")
            return None
        data = frames[1].bytes
        try:
            message = decode(data)
        except BadMessage as error:
            self.refused.add("bad message", f"from '{name}': {error}")
            return None
        if not isinstance(message, FROM_WORKERS) or message.worker != name:
            self.refused.add("bad message", f"a {type(message).__name__} from '{name}'")
            return None
        return name, message, data
