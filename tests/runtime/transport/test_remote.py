"""Blocks of other nodes: fetched once while they are looked at, counted, and never waited for
without an end."""

import gc
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.incarnation import token_of
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.transport.blocks import PoolBlocks
from flowgraph.runtime.transport.failures import BlockUnreachable
from flowgraph.runtime.transport.keys import new_keyrings
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.transport.receiving import Limits
from flowgraph.runtime.transport.remote import Arrival, Nodes, Remote
from tests.runtime.transport.rig import HURRY, Serving, bytes_batch, serving, written

BUDGET = 3 << 20


@pytest.fixture
def there() -> Iterator[Serving]:
    """A node's porter, serving on a thread."""
    with serving([porter_of("there"), "host-0"]) as found:
        yield found


def remote(there: Serving, limits: Limits = HURRY) -> Remote:
    nodes = Nodes(
        of={"host-0": "here", "host-1": "there"},
        porters={"there": there.server.endpoint, "here": "tcp://127.0.0.1:1"},
    )
    return Remote("here", nodes, there.rings["host-0"], BUDGET, limits)


def block(nbytes: int, seed: int = 0, incarnation: int = 0) -> tuple[Segment, Handle]:
    segment = Segment(token_of("host-1", incarnation), 1 << 24)
    return segment, written(segment, bytes_batch(nbytes, seed))


def test_a_block_is_fetched_once_while_anybody_looks_at_it(there: Serving) -> None:
    _, handle = block(1 << 20)
    reader = remote(there)
    first, second = reader.open(handle), reader.open(handle)
    assert first.equals(bytes_batch(1 << 20))
    assert reader.fetched == reader.used == handle.nbytes
    view = first["x"].values
    assert not view.flags.writeable
    del first, second
    assert reader.used == handle.nbytes
    assert reader.open(handle)["x"].values[0, 0] == view[0, 0]
    assert reader.fetched == handle.nbytes
    del view
    gc.collect()
    assert reader.used == 0
    reader.open(handle)
    assert reader.fetched == 2 * handle.nbytes
    reader.close()


def test_the_budget_counts_what_is_looked_at_and_what_is_to_come(there: Serving) -> None:
    owners = [block(1 << 20, seed) for seed in range(4)]
    handles = [handle for _, handle in owners]
    reader = remote(there)
    assert reader.fits(handles[:2])
    assert reader.fits(handles[:1] * 9)  # one block, however often
    assert not reader.fits(handles)
    held = reader.open_all(handles[:2])
    assert [b.equals(bytes_batch(1 << 20, n)) for n, b in enumerate(held)] == [True, True]
    assert reader.fits([*handles[:2], handles[0]])  # they are here
    assert not reader.fits(handles[2:])
    held.pop()
    gc.collect()
    assert reader.fits(handles[2:3])
    reader.close()


def test_blocks_travel_while_their_reader_does_something_else(there: Serving) -> None:
    owners = [block(1 << 20, seed) for seed in range(2)]
    first, second = (handle for _, handle in owners)
    reader = remote(there)
    both, one = reader.fetch([first, second]), reader.fetch([first, first])
    assert reader.used == reader.fetched == first.nbytes + second.nbytes
    assert not reader.is_here(one)
    assert set(both.missing.values()) == {"porter:there"}
    assert reader.fits([first, second])  # they are counted
    until_here(reader, both)
    assert reader.is_here(one)
    assert reader.open(second).equals(bytes_batch(1 << 20, 1))
    assert reader.fetched == first.nbytes + second.nbytes
    del both
    gc.collect()
    assert reader.used == first.nbytes
    reader.close()


def until_here(reader: Remote, arrival: Arrival) -> None:
    while not reader.is_here(arrival):
        assert select.select([reader], [], [], 10.0)[0], "nothing arrives"
        reader.look()


def test_whoever_waits_for_a_block_that_cannot_be_had_is_told_and_nobody_else(
    there: Serving,
) -> None:
    segment, freed = block(1000)
    _, good = block(2000, 5)
    segment.free(freed)
    reader = remote(there)
    lost, found = reader.fetch([good, freed]), reader.fetch([good])
    with pytest.raises(BlockUnreachable, match="the block was freed"):
        until_here(reader, lost)
    until_here(reader, found)
    reader.close()


def test_what_a_fetching_thread_fails_of_is_its_owners_error(there: Serving) -> None:
    """A reader without that porter's key: its thread is gone, and nobody waits for it."""
    _, handle = block(1000)
    nodes = Nodes(of={"host-1": "there"}, porters={"there": there.server.endpoint})
    reader = Remote("here", nodes, new_keyrings(["host-0"])["host-0"], BUDGET, HURRY)
    with pytest.raises(ConfigurationError, match="no key of 'porter:there'"):
        reader.open(handle)
    reader.close()


def test_who_closes_does_not_wait_for_what_is_on_its_way(there: Serving) -> None:
    _, handle = block(1000)
    there.stop()
    reader = remote(there, Limits(patience_s=1000.0))
    reader.fetch([handle])
    reader.close()


def test_a_lost_process_left_its_blocks_under_its_own_name(there: Serving) -> None:
    _, old = block(1000, 1)
    _, new = block(1000, 2, incarnation=1)
    reader = remote(there)
    assert [reader.elsewhere(old), reader.elsewhere(new)] == [True, True]
    assert reader.open(old).equals(bytes_batch(1000, 1))
    assert reader.open(new).equals(bytes_batch(1000, 2))
    reader.close()


def test_what_a_porter_has_mapped_it_can_let_go_and_map_again() -> None:
    segment = Segment("mapped-once", 1 << 20)
    handle = written(segment, bytes_batch(1000))
    blocks = PoolBlocks(Reader())
    assert bytes(blocks.memory(handle)) == bytes(blocks.memory(handle))
    path = f"flowgraph:{segment.owner}"
    assert mapped(path) == 2  # the writer's own, and the reader's
    blocks.let_go()
    gc.collect()
    assert mapped(path) == 1
    assert Batch.read(handle.layout, blocks.memory(handle)).equals(bytes_batch(1000))


def mapped(name: str) -> int:
    """How often this process has mapped files of that name."""
    return Path("/proc/self/maps").read_text().count(name)


def test_a_block_of_ones_own_node_is_nobody_elses_business(there: Serving) -> None:
    segment = Segment("host-0", 1 << 20)
    reader = remote(there)
    assert not reader.elsewhere(written(segment, bytes_batch(10)))
    reader.close()


def test_a_freed_block_is_an_error_at_once_and_gives_its_room_back(there: Serving) -> None:
    segment, handle = block(1000)
    segment.free(handle)
    reader = remote(there)
    with pytest.raises(BlockUnreachable, match=r"from porter:there at .*the block was freed"):
        reader.open(handle)
    gc.collect()
    assert reader.used == 0
    reader.close()


def test_without_its_porter_a_block_is_given_up_in_time_and_named(there: Serving) -> None:
    _, handle = block(1000)
    there.stop()
    reader = remote(there, Limits(quiet_s=0.05, patience_s=0.2))
    with pytest.raises(
        BlockUnreachable, match=r"bytes of 'host-1' from porter:there .*0 of 1 chunk"
    ):
        reader.open(handle)
    reader.close()


def test_one_that_fails_does_not_spoil_the_others(there: Serving) -> None:
    segment, freed = block(1000)
    _, good = block(2000, 5)
    segment.free(freed)
    reader = remote(there)
    with pytest.raises(BlockUnreachable):
        reader.open_all([good, freed])
    assert reader.open(good).equals(bytes_batch(2000, 5))
    reader.close()
