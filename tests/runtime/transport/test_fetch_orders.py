"""A fetch under every order of events: whole and verified, or ended by a named error in time."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime.transport.chunks import CHUNK
from flowgraph.runtime.transport.failures import BlockCorrupt, FetchRefused, PeerLost
from flowgraph.runtime.transport.receiving import Phase
from flowgraph.runtime.transport.wire import Open
from tests.runtime.transport.network import LIMITS, Network

FAULTS = [
    "sender_takes",
    "sender_sends",
    "reader_takes",
    "time_passes",
    "lose",
    "double",
    "swap",
    "sender_dies",
    "sender_restarts",
    "reader_restarts",
]


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("window", [1, 3, 16])
@pytest.mark.parametrize("chunks", [0, 1, 2, 9])
def test_a_block_of_any_number_of_chunks_comes_whole_and_in_order(
    chunks: int, window: int, trusted: bool
) -> None:
    network = Network(chunks=chunks, window=window, trusted=trusted)
    network.run()
    assert network.fetch.phase is Phase.DONE
    assert network.written == list(range(chunks))
    assert len(network.outbox) == 0
    assert network.now == 0.0  # nothing waited for a clock


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(FAULTS), max_size=60), st.integers(0, 7), st.booleans())
def test_whatever_happens_the_fetch_goes_on_where_it_stopped(
    events: list[str], chunks: int, trusted: bool
) -> None:
    network = Network(chunks=chunks, window=3, budget=4, trusted=trusted)
    for event in events:
        getattr(network, event)()
        network.check()
        if network.fetch.over:
            break
    if not network.alive:
        network.sender_restarts()
    network.run()
    network.check()
    if network.fetch.phase is Phase.DONE:
        assert sorted(set(network.written)) == list(range(chunks))
    else:
        assert isinstance(network.fetch.error, PeerLost)
        assert events.count("time_passes") > 1
    assert len(network.outbox) == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_chunks_that_overtake_each_other_are_asked_for_again(order: tuple[int, ...]) -> None:
    network = Network(chunks=3, window=3)
    network.sender_takes()
    network.reader_takes()
    while network.sender_sends():
        pass
    pieces = list(network.to_reader)
    network.to_reader.clear()
    network.to_reader.extend(pieces[at] for at in order)
    network.run()
    assert network.fetch.phase is Phase.DONE
    assert network.written == [0, 1, 2]
    assert network.now == 0.0  # at once, not after a silence


@pytest.mark.parametrize("chunk", range(6))
def test_a_sender_that_dies_after_any_chunk_and_stays_away_is_a_named_bounded_error(
    chunk: int,
) -> None:
    network = Network(chunks=6, window=2)
    while network.fetch.received < chunk:
        assert network.sender_takes() | network.sender_sends() | network.reader_takes()
    network.sender_dies()
    while not network.fetch.over:
        network.sender_takes()
        network.time_passes()
    assert network.now == pytest.approx(LIMITS.patience_s)
    error = network.fetch.error
    assert isinstance(error, PeerLost)
    assert f"{chunk} of 6 chunks had come" in str(error)
    assert "'host-0'" in str(error)


@pytest.mark.parametrize("chunk", range(6))
def test_a_reader_that_dies_after_any_chunk_costs_the_sender_nothing_after_its_idle_time(
    chunk: int,
) -> None:
    network = Network(chunks=6, window=2)
    while network.fetch.received < chunk:
        assert network.sender_takes() | network.sender_sends() | network.reader_takes()
    network.sender_takes()
    while network.sender_sends():
        pass
    assert len(network.outbox) == 1
    assert network.outbox.in_flight <= 2
    assert network.outbox.expire(network.now + 4.9) == []
    assert len(network.outbox.expire(network.now + 5.0)) == 1
    assert network.outbox.in_flight == 0


def test_a_damaged_chunk_is_sent_again_and_only_that_one() -> None:
    network = Network(chunks=4, window=1)
    network.sender_takes()
    network.reader_takes()
    network.sender_sends()
    network.damage()
    network.run()
    assert network.fetch.phase is Phase.DONE
    assert network.written == [0, 1, 2, 3]


def test_a_chunk_that_is_always_damaged_ends_the_fetch() -> None:
    network = Network(chunks=4, window=1)
    while not network.fetch.over:
        network.sender_takes()
        network.sender_sends()
        network.damage()
        network.reader_takes()
    assert isinstance(network.fetch.error, BlockCorrupt)
    assert "chunk 0 of 4 is damaged, the 4th" in str(network.fetch.error)


def test_a_block_that_was_freed_is_refused_at_once() -> None:
    network = Network(chunks=4)
    network.gone = True
    network.run()
    assert isinstance(network.fetch.error, FetchRefused)
    assert "StaleHandle: it was freed" in str(network.fetch.error)
    assert network.now == 0.0


def test_beyond_two_gigabytes_chunks_have_their_right_places() -> None:
    """3 GiB of which all but the last two chunks are here already."""
    chunks = (3 << 30) // CHUNK
    network = Network(chunks=chunks, received=chunks - 2)
    assert network.fetch.nbytes == 3 << 30
    network.sender_takes()
    network.reader_takes()
    assert network.fetch.place(chunks - 2) == ((3 << 30) - 2 * CHUNK, (3 << 30) - CHUNK)
    network.run()
    assert network.fetch.phase is Phase.DONE
    assert network.written[-2:] == [chunks - 2, chunks - 1]


def test_what_is_on_the_wire_never_exceeds_the_window_of_a_slow_reader() -> None:
    network = Network(chunks=20, window=3, budget=8)
    most = 0
    while not network.fetch.over:
        network.sender_takes()
        while network.sender_sends():
            pass
        most = max(most, sum(not hasattr(m, "digests") for m in network.to_reader))
        network.reader_takes()
    assert most == 3
    assert network.written == list(range(20))


def test_asking_again_takes_twice_as_long_each_time_until_something_comes() -> None:
    network = Network(chunks=2)
    network.sender_dies()
    asked = [network.now]
    while not network.fetch.over:
        network.to_sender.clear()
        network.time_passes()
        if network.to_sender and isinstance(network.to_sender[0], Open):
            asked.append(network.now)
    assert asked == [0.0, 1.0, 3.0, 7.0]


@pytest.mark.parametrize("half_way", [False, True])
def test_time_in_which_nobody_looked_is_not_held_against_the_sender(half_way: bool) -> None:
    """The reader was stopped, or its other threads let none run: it asks again, and goes on."""
    network = Network(chunks=3, window=2)
    if half_way:
        while network.fetch.received == 0:
            network.sender_takes(), network.sender_sends(), network.reader_takes()
    network.sender_dies()
    network.now += 100 * LIMITS.patience_s
    network.time_passes()
    assert not network.fetch.over
    network.sender_restarts()
    network.run()
    assert network.fetch.phase is Phase.DONE


def test_a_sender_that_is_gone_is_given_up_however_late_anybody_looks() -> None:
    network = Network(chunks=3)
    network.sender_dies()
    looks = 0
    while not network.fetch.over:
        network.now += 2 * LIMITS.patience_s
        network.time_passes()
        network.to_sender.clear()
        looks += 1
        assert looks < 20
    assert isinstance(network.fetch.error, PeerLost)
