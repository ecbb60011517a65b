"""The other process of a measurement: `python -m benchmarks.transport.side ROLE ENDPOINT ...`.

pool: opens each handle it is sent, and answers. echo: answers each frame with itself. link: answers
messages of ours with messages of ours. blob NBYTES FRAME [KEYS]: sends NBYTES in frames of FRAME
bytes for each request, plainly. produce ITEMS NBYTES BUDGET: puts items as fast as there is room,
and frees a block for each line of standard input. serve NBYTES KEYS TRUSTED: our block server;
first prints its endpoint and a handle. porter ITEMS NBYTES KEYS TRUSTED: the same with several
blocks, whose bytes are their numbers: prints its endpoint, and then their handles.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import zmq

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.messages import Load, Loaded, decode, encode
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.gate import Gate
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.server import BlockServer
from flowgraph.runtime.transport.sockets import Context, Socket, make_socket, require_keys


def replier(endpoint: str) -> Socket:
    context: Context = zmq.Context()
    socket = make_socket(context, zmq.DEALER)
    socket.connect(endpoint)
    return socket


def pool(endpoint: str) -> None:
    socket, reader = replier(endpoint), Reader()
    while True:
        batch = reader.open(Handle.from_plain(msgpack.unpackb(socket.recv(), use_list=False)))
        socket.send(str(batch.rows).encode())


def echo(endpoint: str) -> None:
    socket = replier(endpoint)
    while True:
        socket.send(socket.recv())


def link(endpoint: str) -> None:
    socket = replier(endpoint)
    while True:
        message = decode(socket.recv())
        assert isinstance(message, Load)
        socket.send(encode(Loaded(worker="engine-0", version=message.version, busy_s=0.0)))


def blob(nbytes: str, frame: str, keys: str = "") -> None:
    context: Context = zmq.Context()
    socket = make_socket(context, zmq.ROUTER)
    gate = None
    if keys:
        ring = Keyring.read(Path(keys))
        gate = Gate(context, ring.peers, Refusals())
        require_keys(socket, ring.own)
    socket.bind("tcp://127.0.0.1:*")
    print(socket.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    data = np.random.default_rng(0).integers(0, 256, int(nbytes), np.uint8).data
    step = int(frame)
    while True:
        if gate is not None:
            gate.answer()
        if not socket.poll(10):
            continue
        peer, _ = socket.recv_multipart()
        for start in range(0, len(data), step):
            socket.send(peer, zmq.SNDMORE)
            socket.send(data[start : start + step], copy=False)


def produce(items: str, nbytes: str, budget: str) -> None:
    segment = Segment("producer-0", int(budget))
    mine: dict[tuple[int, int], Handle] = {}
    print("up", flush=True)
    for number in range(int(items)):
        batch = Batch(1, {"x": Column("uint8", np.full((1, int(nbytes)), number, np.uint8))})
        while (handle := segment.try_write(batch)) is None:
            print("full", flush=True)
            offset, generation = map(int, sys.stdin.readline().split())
            segment.free(mine.pop((offset, generation)))
        mine[(handle.offset, handle.generation)] = handle
        print(msgpack.packb(handle.to_plain()).hex(), flush=True)
        del batch
    sys.stdin.read()


def serve(nbytes: str, keys: str, trusted: str) -> None:
    segment = Segment("server", 1 << 28)
    values = np.random.default_rng(0).integers(0, 256, (1, int(nbytes)), np.uint8)
    handle = segment.try_write(Batch(1, {"x": Column("uint8", values)}))
    assert handle is not None
    blocks = PoolBlocks(Reader())
    blocks.note(handle)
    ring = Keyring.read(Path(keys))
    server = BlockServer(blocks, "tcp://127.0.0.1:*", ring, trusted=trusted == "trusted")
    print(server.endpoint, msgpack.packb(handle.to_plain()).hex(), flush=True)
    server.serve(lambda: False)


def porter(items: str, nbytes: str, keys: str, trusted: str) -> None:
    segment = Segment("host-1", int(items) * (int(nbytes) + (1 << 12)))
    handles = []
    for number in range(int(items)):
        handle = segment.try_write(
            Batch(1, {"x": Column("uint8", np.full((1, int(nbytes)), number, np.uint8))})
        )
        assert handle is not None
        handles.append(handle)
    ring = Keyring.read(Path(keys))
    blocks = PoolBlocks(Reader())
    server = BlockServer(blocks, "tcp://127.0.0.1:*", ring, trusted=trusted == "trusted")
    print(server.endpoint, flush=True)
    print(*(msgpack.packb(handle.to_plain()).hex() for handle in handles), flush=True)
    server.serve(lambda: False)


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {
        "pool": pool,
        "echo": echo,
        "link": link,
        "blob": blob,
        "produce": produce,
        "serve": serve,
        "porter": porter,
    }
    roles[sys.argv[1]](*sys.argv[2:])
