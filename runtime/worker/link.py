"""A worker's socket to the orchestrator, and the one place where sockets get their options."""

import zmq

from flowgraph.runtime.messages import Message, decode, encode

LINGER_MS = 2000
"""How long a closing socket may still send: a last `Failed` must not be lost with the process."""


def make_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """A socket with this project's options.

    High-water marks are off: messages are small, and what bounds them is work in flight, which the
    orchestrator counts; a full queue would otherwise drop (ROUTER) or block (DEALER) in silence.
    """
    socket: zmq.Socket[bytes] = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    return socket


class Link:
    """DEALER to the orchestrator's ROUTER, under the worker's name."""

    def __init__(self, name: str, endpoint: str) -> None:
        self.name = name
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = make_socket(self._context, zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, name.encode())
        self._socket.connect(endpoint)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def also_wake_on(self, fd: int) -> None:
        """`receive` ends its waiting when this descriptor is readable, too."""
        self._poller.register(fd, zmq.POLLIN)

    def send(self, message: Message) -> None:
        self._socket.send(encode(message))

    def receive(self, timeout_ms: int) -> list[Message]:
        """All messages that are there; waits up to `timeout_ms` (-1: for ever) for the first."""
        messages: list[Message] = []
        self._poller.poll(timeout_ms)
        while True:
            try:
                messages.append(decode(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    def close(self) -> None:
        """Send what is queued, then end."""
        self._socket.close()
        self._context.term()
