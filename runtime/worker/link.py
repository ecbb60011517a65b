"""A worker's socket to the orchestrator."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import zmq

from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.messages import FromWorker, Message, decode, encode
from flowgraph.runtime.transport.failures import PeerLost
from flowgraph.runtime.transport.keys import ORCHESTRATOR, Keyring
from flowgraph.runtime.transport.sockets import Context, make_socket, present_keys


class Line(Protocol):
    """What a worker needs of its connection: `Link` is the one between processes."""

    def also_wake_on(self, fd: int) -> None: ...

    def send(self, message: FromWorker) -> None: ...

    def receive(self, timeout_ms: int) -> list[Message]: ...


class Link:
    """DEALER to the orchestrator's ROUTER, under the process's token (see `incarnation.py`).

    keys: the worker's key file when the endpoint is tcp; over ipc the folder's mode protects.
    """

    def __init__(self, name: str, endpoint: str, keys: str = "", incarnation: int = 0) -> None:
        self.name = name
        self._incarnation = incarnation
        self._context: Context = zmq.Context()
        self._socket = make_socket(self._context, zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, token_of(name, incarnation).encode())
        if keys:
            keyring = Keyring.read(Path(keys))
            present_keys(self._socket, keyring.own, keyring.peers[ORCHESTRATOR])
        self._socket.connect(endpoint)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def also_wake_on(self, fd: int) -> None:
        """`receive` ends its waiting when this descriptor is readable, too."""
        self._poller.register(fd, zmq.POLLIN)

    def send(self, message: FromWorker) -> None:
        """Queue for the orchestrator. Raises PeerLost when it does not let this worker in."""
        if self._incarnation:
            message = replace(message, incarnation=self._incarnation)
        try:
            self._socket.send(encode(message))
        except zmq.Again as error:
            raise PeerLost(f"the orchestrator takes no messages of '{self.name}'") from error

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
