"""72 MiB over tcp loopback into a tensor: ours beside plain pyzmq, in the clear and with CURVE."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgpack
import torch
import zmq

from benchmarks.transport.rig import first_words, in_turns, side
from flowgraph.runtime.transport.client import BlockClient, Source
from flowgraph.runtime.transport.keys import Keyring, new_keyrings
from flowgraph.runtime.transport.sockets import Context, make_socket, present_keys

NBYTES = 72 << 20
FRAME = 2 << 20


@contextmanager
def raw(
    frame: int, into: memoryview, ring: Keyring | None, keys: str
) -> Iterator[Callable[[], None]]:
    """pyzmq alone: a request, then the bytes in frames, each copied to its place."""
    with side("blob", str(NBYTES), str(frame), *([keys] if keys else [])) as child:
        (endpoint,) = first_words(child)
        context: Context = zmq.Context()
        socket = make_socket(context, zmq.DEALER)
        if ring is not None:
            present_keys(socket, ring.own, ring.peers["server"])
        socket.connect(endpoint)

        def turn() -> None:
            socket.send(b"go")
            for start in range(0, NBYTES, frame):
                got = socket.recv(copy=False)
                into[start : start + frame] = got.buffer

        yield turn
        socket.close(0)
        context.term()


@contextmanager
def ours(trusted: bool, into: memoryview, ring: Keyring, keys: str) -> Iterator[Callable[[], None]]:
    with side("serve", str(NBYTES), keys, "trusted" if trusted else "curve") as child:
        endpoint, packed = first_words(child)
        block = msgpack.unpackb(bytes.fromhex(packed), use_list=False)
        client = BlockClient(ring)
        source = Source(endpoint=endpoint, server="server", block=block)
        yield lambda: client.fetch(source, into)
        client.close()


def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds by way, in turns."""
    folder = Path(tempfile.mkdtemp(prefix="flowgraph-bench-"))
    rings = new_keyrings(["server", "reader"])
    keys = str(rings["server"].write(folder))
    target = torch.empty(NBYTES, dtype=torch.uint8)
    into = target.numpy().data
    with ExitStack() as stack:
        turns = {
            "one frame": stack.enter_context(raw(NBYTES, into, None, "")),
            "2 MiB frames": stack.enter_context(raw(FRAME, into, None, "")),
            "2 MiB frames, CURVE": stack.enter_context(raw(FRAME, into, rings["reader"], keys)),
            "ours, trusted": stack.enter_context(ours(True, into, rings["reader"], keys)),
            "ours, CURVE": stack.enter_context(ours(False, into, rings["reader"], keys)),
        }
        return in_turns(turns, rounds)
