"""Connections that never became peers: counted from what the socket itself reports."""

import zmq
from zmq.utils.monitor import parse_monitor_message

from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.sockets import Socket

_WATCHED = (
    zmq.Event.ACCEPTED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


class Door:
    """Watches a CURVE server's connections. `socket` is readable when there is something to count.

    A key that the gate refused is counted by the gate; here, all that did not come so far: no
    ZeroMQ at all, no CURVE, a wrong server key, a connection dropped midway. The reports do not say
    which connection they are about, so one that ends while others are at their handshake is taken
    for one of those: the count may be too high by what ends in those milliseconds.
    """

    def __init__(self, watched: Socket, refused: Refusals) -> None:
        self._watched = watched
        self._refused = refused
        self._undecided = 0  # accepted, and neither let in nor refused yet
        self.socket: Socket = watched.get_monitor_socket(_WATCHED)

    def count(self) -> None:
        """Takes all reports that are there; never waits."""
        while self.socket.poll(0):
            told = parse_monitor_message(self.socket.recv_multipart())
            self._note(zmq.Event(told["event"]), told["endpoint"].decode())

    def close(self) -> None:
        """Counts what was reported so far; the rest is cut off."""
        self.count()
        self._watched.disable_monitor()
        self.socket.close(0)

    def _note(self, event: zmq.Event, endpoint: str) -> None:
        if event is zmq.Event.ACCEPTED:
            self._undecided += 1
        elif self._undecided:
            self._undecided -= 1
            if event not in (zmq.Event.HANDSHAKE_SUCCEEDED, zmq.Event.HANDSHAKE_FAILED_AUTH):
                self._refused.add("no handshake", f"a connection to {endpoint}")
