"""Who may connect: the allow-list of a run's public keys (ZAP, https://rfc.zeromq.org/spec/27/).

libzmq asks over an in-process socket before a CURVE handshake ends. The gate is asked and answers
in the caller's own loop: register `socket` with the poller and call `answer` when it is readable.
What it lets in carries the name that belongs to the key, so no worker can speak as another.
"""

from collections.abc import Mapping

import zmq
from zmq.utils import z85

from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sockets import ZAP_DOMAIN, Context, Socket

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"


class Gate:
    """Lets in the peers with these public keys (Z85) and nobody else; counts who was refused.

    One for a context; make it before the sockets it guards are bound.
    """

    def __init__(self, context: Context, allowed: Mapping[str, bytes], refused: Refusals) -> None:
        self._names = {z85.decode(key): name for name, key in allowed.items()}
        self._refused = refused
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ENDPOINT)

    def answer(self) -> None:
        """Answers all questions that are there; never waits."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.socket.send_multipart(self._verdict(frames))

    def _verdict(self, frames: list[bytes]) -> list[bytes]:
        version, request, domain, address, _identity, mechanism, *keys = frames
        name = None
        if version == _VERSION and domain == ZAP_DOMAIN and mechanism == b"CURVE" and keys:
            name = self._names.get(keys[0])
        if name is None:
            self._refused.add("unknown key", f"a peer at {address.decode(errors='replace')}")
            return [_VERSION, request, b"400", b"not of this run", b"", b""]
        return [_VERSION, request, b"200", b"OK", name.encode(), b""]

    def close(self) -> None:
        self.socket.close(0)
