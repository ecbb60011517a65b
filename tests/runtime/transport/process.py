"""Other sides of fetches, to be killed: `python -m tests.runtime.transport.process ROLE ...`.

own NBYTES: holds one block of random bytes, prints its handle, until standard input ends.
serve ENDPOINT: serves any process's blocks, prints `up`, until it is killed.
porter KEYS: the same over CURVE, prints its endpoint.
read ENDPOINT HANDLE: fetches one chunk at a time, prints how many it has, and waits for a line of
standard input before it goes on.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from flowgraph.runtime.pool import Reader, Segment
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.chunks import CHUNK
from flowgraph.runtime.transport.client import BlockClient, Source
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.server import BlockServer
from tests.runtime.pool_process import from_line, to_line
from tests.runtime.transport.rig import LOOPBACK, bytes_batch, written


def own(nbytes: str) -> None:
    segment = Segment("owner", 1 << 26)
    print(to_line(written(segment, bytes_batch(int(nbytes)))), flush=True)
    sys.stdin.read()


def serve(endpoint: str) -> None:
    server = BlockServer(PoolBlocks(Reader()), endpoint)
    print("up", flush=True)
    server.serve(lambda: False)


def porter(keys: str) -> None:
    server = BlockServer(PoolBlocks(Reader()), LOOPBACK, Keyring.read(Path(keys)))
    print(server.endpoint, flush=True)
    server.serve(lambda: False)


def read(endpoint: str, line: str) -> None:
    handle = from_line(line)
    source = Source(endpoint=endpoint, server="owner", block=handle.to_plain())
    client = BlockClient(window=1)
    number = client.start(source, memoryview(bytearray(handle.nbytes)))
    for count in range(handle.nbytes // CHUNK):
        while client.received(number) < count:
            client.turn(100)
        print(count, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {
        "own": own,
        "serve": serve,
        "porter": porter,
        "read": read,
    }
    roles[sys.argv[1]](*sys.argv[2:])
