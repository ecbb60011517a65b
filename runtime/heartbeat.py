"""A worker's sign of life, sent from a thread of its own over a socket of its own.

It says that the process runs, not that its work goes on: that is what its messages say.
"""

import threading
from contextlib import suppress
from pathlib import Path

import zmq

from flowgraph.runtime.transport.keys import ORCHESTRATOR, Keyring
from flowgraph.runtime.transport.sockets import Context, make_socket, present_keys
from flowgraph.runtime.transport.switchboard import BEAT


def start_beating(name: str, endpoint: str, keys: str, every_s: float) -> None:
    """Beat every `every_s` seconds until the process ends; 0: never. Returns at once."""
    if every_s > 0:
        thread = threading.Thread(
            target=_beat, args=(name, endpoint, keys, every_s), name="heartbeat", daemon=True
        )
        thread.start()


def _beat(name: str, endpoint: str, keys: str, every_s: float) -> None:
    context: Context = zmq.Context()
    socket = make_socket(context, zmq.DEALER)
    if keys:
        keyring = Keyring.read(Path(keys))
        present_keys(socket, keyring.own, keyring.peers[ORCHESTRATOR])
    socket.connect(endpoint)
    never = threading.Event()
    while True:
        with suppress(zmq.Again):  # nobody is there to hear it: the next beat will do
            socket.send_multipart([BEAT, name.encode()], zmq.NOBLOCK)
        never.wait(every_s)
