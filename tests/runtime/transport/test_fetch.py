"""Fetching over real sockets: ipc, tcp with CURVE, tcp with records in the clear."""

from pathlib import Path

import numpy as np
import pytest
import zmq

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.batch import Column
from flowgraph.runtime.transport.chunks import CHUNK
from flowgraph.runtime.transport.client import BlockClient, Source
from flowgraph.runtime.transport.failures import FetchRefused, PeerLost
from flowgraph.runtime.transport.keys import KeyPair, Keyring
from flowgraph.runtime.transport.server import BlockServer
from flowgraph.runtime.transport.wire import Chunk, Close, encode
from tests.runtime.pool_process import sample_batch
from tests.runtime.transport.rig import (
    HURRY,
    LOOPBACK,
    bytes_batch,
    rig,
    source_of,
    turned,
    written,
)

WAYS = ["ipc", "tcp", "trusted"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("nbytes", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 12345])
def test_a_block_of_any_size_arrives_byte_for_byte(way: str, nbytes: int, tmp_path: Path) -> None:
    with rig(way, tmp_path) as made:
        batch = bytes_batch(nbytes)
        arrived, error = made.fetched(batch)
        assert error is None
        assert arrived is not None
        assert arrived.equals(batch)
        for _ in range(50):  # until the reader's Close is there, which may come after a credit
            if made.server.fetches == 0:
                break
            made.server.turn(100)
        assert (made.server.fetches, made.server.in_flight_bytes) == (0, 0)
        assert (made.server.refused.total, made.client.refused.total) == (0, 0)


def test_ragged_columns_and_arrays_with_gaps_arrive_as_they_were(tmp_path: Path) -> None:
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    batch = sample_batch(4).with_columns(
        {
            "gaps": Column("float32", wide[:, ::2]),
            "turned": Column("float32", wide.reshape(6, 4).T),
            "ragged": Column("int64", np.arange(7), (np.array([0, 3, 3, 3, 7]),)),
        }
    )
    with rig("tcp", tmp_path) as made:
        arrived, error = made.fetched(batch)
        assert error is None
        assert arrived is not None
        assert arrived.equals(batch)


@pytest.mark.parametrize("way", WAYS)
def test_many_fetches_share_the_budget_and_all_arrive(way: str, tmp_path: Path) -> None:
    with rig(way, tmp_path, window=3, budget_chunks=4) as made:
        handles = [written(made.segment, bytes_batch(4 * CHUNK + n, seed=n)) for n in range(5)]
        room = [memoryview(bytearray(handle.nbytes)) for handle in handles]
        left = {
            made.client.start(source_of(made.server, handle), into)
            for handle, into in zip(handles, room, strict=True)
        }
        while left:
            made.server.turn(0)
            assert made.server.in_flight_bytes <= 4 * CHUNK
            assert made.client.in_flight_bytes <= 4 * CHUNK
            for ended in made.client.turn(1):
                assert ended.error is None
                left.remove(ended.fetch)
        for handle, into in zip(handles, room, strict=True):
            assert into == made.blocks.memory(handle)


@pytest.mark.parametrize("way", WAYS)
def test_a_block_that_was_freed_is_refused_by_name(way: str, tmp_path: Path) -> None:
    with rig(way, tmp_path) as made:
        handle = written(made.segment, bytes_batch(10))
        made.segment.free(handle)
        number = made.client.start(source_of(made.server, handle), memoryview(bytearray(10)))
        error = turned(made.client, made.server, number)
        assert isinstance(error, FetchRefused)
        assert "StaleHandle" in str(error)


def test_a_block_that_is_freed_midway_is_refused_and_never_read_as_another(tmp_path: Path) -> None:
    with rig("tcp", tmp_path, window=1) as made:
        handle = written(made.segment, bytes_batch(6 * CHUNK))
        into = memoryview(bytearray(handle.nbytes))
        number = made.client.start(source_of(made.server, handle), into)
        while made.client.received(number) < 2:
            made.server.turn(0)
            made.client.turn(1)
        made.segment.free(handle)
        written(made.segment, bytes_batch(6 * CHUNK))  # takes its place, alike to the byte
        assert isinstance(turned(made.client, made.server, number), FetchRefused)


def test_a_late_server_is_found_and_an_absent_one_is_a_bounded_error(tmp_path: Path) -> None:
    with rig("ipc", tmp_path) as made:
        handle = written(made.segment, bytes_batch(CHUNK + 1))
        late = f"ipc://{tmp_path}/late"
        into = memoryview(bytearray(handle.nbytes))
        source = Source(endpoint=late, server="owner", block=handle.to_plain())
        number = made.client.start(source, into)
        assert made.client.turn(10) == []
        server = BlockServer(made.blocks, late)
        assert turned(made.client, server, number) is None
        assert into == made.blocks.memory(handle)
        server.close()
        with pytest.raises(PeerLost, match="nothing came for 1 s; 0 of 2 chunks"):
            made.client.fetch(source, into)


@pytest.mark.parametrize("way", WAYS)
def test_a_fetch_goes_on_where_an_earlier_one_stopped(way: str, tmp_path: Path) -> None:
    with rig(way, tmp_path) as made:
        handle = written(made.segment, bytes_batch(4 * CHUNK + 5))
        into = memoryview(bytearray(handle.nbytes))
        into[: 3 * CHUNK] = made.blocks.memory(handle)[: 3 * CHUNK]
        number = made.client.start(source_of(made.server, handle), into, received=3)
        assert turned(made.client, made.server, number) is None
        assert into == made.blocks.memory(handle)


def test_a_reader_that_raises_midway_leaves_the_server_free_at_once(tmp_path: Path) -> None:
    with rig("tcp", tmp_path, window=1) as made:
        handle = written(made.segment, bytes_batch(6 * CHUNK))
        reader = BlockClient(made.rings["reader"], window=1, limits=HURRY)
        number = reader.start(source_of(made.server, handle), memoryview(bytearray(handle.nbytes)))
        while reader.received(number) < 1:
            made.server.turn(0)
            reader.turn(1)
        assert made.server.fetches == 1
        reader.close()  # what its owner does when it raises
        made.server.turn(500)
        assert (made.server.fetches, made.server.in_flight_bytes) == (0, 0)


def test_tcp_without_keys_is_refused_on_both_sides(tmp_path: Path) -> None:
    with rig("ipc", tmp_path) as made:
        with pytest.raises(ConfigurationError, match="needs keys"):
            BlockServer(made.blocks, LOOPBACK)
        handle = written(made.segment, bytes_batch(1))
        source = Source(endpoint="tcp://127.0.0.1:9", server="owner", block=handle.to_plain())
        with pytest.raises(ConfigurationError, match="no key of 'owner'"):
            made.client.start(source, memoryview(bytearray(1)))


def test_a_stranger_gets_nothing_and_is_counted(tmp_path: Path) -> None:
    """It knows the server's public key, but its own is not of this run."""
    with rig("tcp", tmp_path) as made:
        stranger = Keyring(name="reader", own=KeyPair.new(), peers=made.rings["reader"].peers)
        client = BlockClient(stranger, limits=HURRY)
        handle = written(made.segment, bytes_batch(10))
        number = client.start(source_of(made.server, handle), memoryview(bytearray(10)))
        assert isinstance(turned(client, made.server, number), PeerLost)
        assert made.server.refused.of("unknown key") >= 1
        client.close()
        arrived, _ = made.fetched(bytes_batch(10))
        assert arrived is not None


def test_bad_messages_and_false_tokens_are_counted_and_the_server_goes_on(tmp_path: Path) -> None:
    with rig("trusted", tmp_path) as made:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        rude = context.socket(zmq.DEALER)
        rude.setsockopt(zmq.LINGER, 0)
        rude.connect(made.server.bulk)
        rude.send(b"0123456789abcdef")
        while made.server.refused.of("unknown token") < 1:
            made.server.turn(100)
        made.client.start(
            source_of(made.server, written(made.segment, bytes_batch(1))),
            memoryview(bytearray(1)),
        )
        (control,) = made.client._control.values()
        for nonsense in (b"", b"\xc1", encode(Chunk(fetch=1, attempt=1, index=1))):
            control.send(nonsense)
        control.send_multipart([encode(Close(fetch=1)), b"more"])
        while made.server.refused.of("bad message") < 4:
            made.server.turn(100)
        arrived, _ = made.fetched(bytes_batch(CHUNK))
        assert arrived is not None
        rude.close()
        context.term()
