"""Cases F5 and F6: transfers that are interrupted, and edges whose producer is faster.

F5: the receiver is killed between two chunks; it raises on chunk 1; it is late; it is slow; blocks
of 0 bytes, of one row, beyond 2 GiB, from arrays with gaps. Right: byte for byte, or a bounded,
named error, and no socket or shared-memory file left. F6: a byte budget, a producer ten times
faster. Right: the budget and one item, the producer waits, nothing is dropped.
"""

import mmap
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.failures import BlockTooLarge
from flowgraph.runtime.pool import Handle, Reader
from flowgraph.runtime.transport.chunks import CHUNK, DIGEST, chunks_in, digest
from flowgraph.runtime.transport.client import BlockClient, Finished, Source
from flowgraph.runtime.transport.failures import PeerLost
from flowgraph.runtime.transport.interface import Address, Transport
from flowgraph.runtime.transport.receiving import Limits
from flowgraph.runtime.transport.server import BlockServer
from flowgraph.runtime.transport.shared_memory import SharedMemory
from flowgraph.runtime.transport.zeromq import NoRoom, ZeroMq
from tests.runtime.pool_process import from_line, to_line
from tests.runtime.transport.rig import HURRY, bytes_batch, rig, source_of, turned, written

ROOT = Path(__file__).parents[2]
CHUNKS = 6
NBYTES = CHUNKS * CHUNK


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Killed with -9 and reaped at the end, if not before."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.transport.process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield child
    finally:
        kill(child)


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def until(client: BlockClient, number: int, received: int) -> None:
    while client.received(number) < received:
        assert client.turn(100) == []


def test_f5_a_sender_killed_between_two_chunks_and_replaced_costs_only_what_was_on_its_way(
    tmp_path: Path,
) -> None:
    before = set(os.listdir("/dev/shm"))
    endpoint = f"ipc://{tmp_path}/blocks"
    client = BlockClient(window=1, limits=Limits(quiet_s=0.3, patience_s=20.0))
    with process("own", str(NBYTES)) as owner:
        handle = from_line(line(owner))
        into = memoryview(bytearray(handle.nbytes))
        source = Source(endpoint=endpoint, server="owner", block=handle.to_plain())
        with process("serve", endpoint) as first:
            assert line(first) == "up"
            number = client.start(source, into)
            until(client, number, 3)
            kill(first)
        with process("serve", endpoint):
            finished: list[Finished] = []
            while not finished:
                finished = client.turn(100)
        assert finished[0].error is None
        assert into == Reader().memory(handle)
    client.close()
    assert set(os.listdir("/dev/shm")) == before


def test_f5_a_sender_killed_for_good_is_a_named_error_within_the_bound(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/blocks"
    client = BlockClient(window=1, limits=HURRY)
    with process("own", str(NBYTES)) as owner, process("serve", endpoint) as server:
        handle = from_line(line(owner))
        into = memoryview(bytearray(handle.nbytes))
        source = Source(endpoint=endpoint, server="owner", block=handle.to_plain())
        assert line(server) == "up"
        number = client.start(source, into)
        until(client, number, 2)
        kill(server)
        killed = time.monotonic()
        while not (finished := client.turn(100)):
            pass
    # One more chunk may have been on its way when it died.
    assert time.monotonic() - killed < HURRY.patience_s + 1.0
    assert isinstance(finished[0].error, PeerLost)
    assert "of 6 chunks had come" in str(finished[0].error)
    client.close()


def test_f5_a_receiver_killed_between_two_chunks_is_forgotten_and_others_are_served(
    tmp_path: Path,
) -> None:
    with rig("ipc", tmp_path) as made:
        handle = written(made.segment, bytes_batch(NBYTES))
        with process("read", made.server.endpoint, to_line(handle)) as reader:
            assert reader.stdin is not None
            for count in range(3):
                while not said(reader, made.server):
                    pass
                assert line(reader) == str(count)
                reader.stdin.write("\n")
                reader.stdin.flush()
            kill(reader)
        began = time.monotonic()
        while made.server.fetches:
            made.server.turn(100)
        assert time.monotonic() - began < 3.0  # idle_s is 1 here
        assert made.server.in_flight_bytes == 0
        arrived, error = made.fetched(bytes_batch(NBYTES, seed=1))
        assert error is None
        assert arrived is not None


def said(child: subprocess.Popen[str], server: BlockServer) -> bool:
    """Turn the server until the child has printed something."""
    assert child.stdout is not None
    server.turn(10)
    return bool(select.select([child.stdout], [], [], 0)[0])


class Sparse:
    """A block of 3 GiB of zeros that take no memory; its chunks' digests are all the same."""

    def __init__(self) -> None:
        self.nbytes = 3 << 30
        fd = os.memfd_create("flowgraph:sparse")
        os.ftruncate(fd, self.nbytes)
        self.map = memoryview(mmap.mmap(fd, self.nbytes))
        os.close(fd)
        self.tail = bytes(range(256)) * 2
        self.map[-512:] = self.tail

    def memory(self, handle: Handle) -> memoryview:
        return self.map

    def check(self, handle: Handle) -> None:
        """It is never freed."""

    def digests(self, handle: Handle) -> bytes:
        count = chunks_in(self.nbytes)
        zero = digest(memoryview(bytes(CHUNK)))
        last = digest(memoryview(bytes(CHUNK - 512) + self.tail))
        made = zero * (count - 1) + last
        assert len(made) == DIGEST * count
        return made


def test_f5_beyond_2_gib_only_what_is_missing_is_touched(tmp_path: Path) -> None:
    """The last two chunks of 3 GiB: offsets beyond 32 bits, memory of a few chunks."""
    block = Sparse()
    target = memoryview(mmap.mmap(-1, block.nbytes))
    server = BlockServer(block, f"ipc://{tmp_path}/sparse")
    client = BlockClient(limits=HURRY)
    handle = Handle(
        owner="owner",
        pid=1,
        fd=3,
        offset=0,
        nbytes=block.nbytes,
        generation=1,
        rows=1,
        layout=(1, ()),
    )
    number = client.start(source_of(server, handle), target, received=chunks_in(block.nbytes) - 2)
    assert turned(client, server, number) is None
    assert target[-512:] == block.tail
    assert bytes(target[-2 * CHUNK : -2 * CHUNK + 8]) == bytes(8)
    client.close()
    server.close()


def test_f5_an_interrupted_reader_gives_its_room_back(tmp_path: Path) -> None:
    """Case: the receiver raises on chunk 1. Its reserved room, in its budget, is free again."""
    there = ZeroMq("there", 1 << 25, f"ipc://{tmp_path}/there")
    here = ZeroMq("here", 1 << 25, f"ipc://{tmp_path}/here", limits=HURRY)
    address = there.put(bytes_batch(NBYTES))
    assert address is not None
    there.close()
    with pytest.raises(PeerLost):
        here.get(address)
    assert here.used == 0
    here.close()


def item(number: int, nbytes: int) -> Batch:
    return Batch(1, {"x": Column("uint8", np.full((1, nbytes), number, np.uint8))})


def number_of(batch: Batch) -> int:
    values = batch["x"].values
    assert values.min() == values.max()
    return int(values[0, 0])


@pytest.mark.parametrize("kind", ["shared-memory", "zeromq"])
def test_f6_a_fast_producer_waits_and_nothing_is_dropped(kind: str, tmp_path: Path) -> None:
    """Ten tries to put for one get: what is held stays in the budget, and all arrive in order."""
    nbytes, budget, items = 3 << 20, 10 << 20, 12
    producer: SharedMemory | ZeroMq
    consumer: SharedMemory | ZeroMq
    if kind == "shared-memory":
        producer, consumer = SharedMemory("p", budget), SharedMemory("c", budget)
    else:
        producer = ZeroMq("p", budget, f"ipc://{tmp_path}/p")
        consumer = ZeroMq("c", budget, f"ipc://{tmp_path}/c")
    waiting: deque[Address] = deque()
    got: list[int] = []
    sent = waited = 0
    while len(got) < items:
        for _ in range(10):
            if sent < items:
                address = producer.put(item(sent, nbytes), "rows")
                if address is None:
                    waited += 1
                else:
                    waiting.append(address)
                    sent += 1
            assert producer.used <= budget
        address = waiting.popleft()
        got.append(number_of(consumer.get(address)))
        assert consumer.used <= budget
        consumer.done(address)
        producer.free(address)
    assert got == list(range(items))
    assert waited > items
    assert (producer.used, consumer.used) == (0, 0)
    closed(producer, consumer)


def test_f6_what_is_on_the_wire_is_in_the_readers_budget_too(tmp_path: Path) -> None:
    nbytes = 3 << 20
    producer = ZeroMq("p", 1 << 25, f"ipc://{tmp_path}/p")
    consumer = ZeroMq("c", 7 << 20, f"ipc://{tmp_path}/c")
    addresses = [producer.put(item(n, nbytes)) for n in range(3)]
    first, second, third = (address for address in addresses if address is not None)
    assert [number_of(consumer.get(address)) for address in (first, second)] == [0, 1]
    with pytest.raises(NoRoom):
        consumer.get(third)
    consumer.done(first)
    assert number_of(consumer.get(third)) == 2
    closed(producer, consumer)


def test_f6_an_item_beyond_the_whole_budget_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    producer = ZeroMq("p", 1 << 20, f"ipc://{tmp_path}/p")
    with pytest.raises(BlockTooLarge, match="stream 'rows'"):
        producer.put(item(1, 2 << 20), "rows")
    closed(producer)


def closed(*transports: Transport) -> None:
    for transport in transports:
        transport.close()
