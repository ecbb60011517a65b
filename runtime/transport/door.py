"""Connections that never became peers: counted from what the socket itself reports."""

import zmq
from zmq.utils.monitor import parse_monitor_message

from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sockets import Socket

_FAILED = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class Door:
    """Watches a CURVE server's handshakes. `socket` is readable when one failed.

    A key that the gate refused is counted by the gate; here, all that did not come so far: no
    ZeroMQ at all, no CURVE, a wrong server key, a connection dropped midway.
    """

    def __init__(self, watched: Socket, refused: Refusals) -> None:
        self._watched = watched
        self._refused = refused
        self.socket: Socket = watched.get_monitor_socket(_FAILED)

    def count(self) -> None:
        """Takes all reports that are there; never waits."""
        while self.socket.poll(0):
            told = parse_monitor_message(self.socket.recv_multipart())
            if told["event"] != zmq.Event.HANDSHAKE_FAILED_AUTH:
                self._refused.add("no handshake", f"a peer at {told['endpoint'].decode()}")

    def close(self) -> None:
        self._watched.disable_monitor()
        self.socket.close(0)
