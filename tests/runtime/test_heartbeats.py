"""Who has stopped: of whom a beat is expected and none comes."""

import math
import tempfile
from collections.abc import Iterator

import pytest
import zmq

from flowgraph.runtime.heartbeats import Heartbeats, period
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.switchboard import BEAT, Switchboard


def always(_: str) -> float:
    return 1.0


def turns(beats: Heartbeats, begin: float, end: float, *beating: str) -> list[tuple[str, float]]:
    """Turns of half a second, in which some beat."""
    now, late = begin, []
    while now <= end:
        beats.beat(beating, now)
        late = beats.late(now, always)
        if late:
            return late
        now += 0.5
    return late


def test_a_worker_that_beats_is_never_late_and_one_that_stops_is_late_at_the_limit() -> None:
    beats = Heartbeats(["a", "b"], 15.0)
    assert turns(beats, 0.0, 60.0, "a", "b") == []
    assert turns(beats, 60.5, 90.0, "a") == [("b", 15.5)]


def test_a_worker_counts_from_its_first_beat_and_no_longer_once_it_is_gone() -> None:
    beats = Heartbeats(["a", "b"], 15.0)
    assert turns(beats, 0.0, 100.0, "a") == []
    beats.beat(["b"], 100.0)
    beats.forget("b")
    assert turns(beats, 100.5, 200.0, "a") == []


def test_only_workers_of_which_a_beat_is_expected_are_late() -> None:
    beats = Heartbeats(["a", "b"], 1.0)
    beats.beat(["a", "b"], 0.0)
    beats.late(0.0, always)
    assert beats.late(1.5, lambda name: 1.0 if name == "b" else math.inf) == [("b", 1.5)]


def test_a_worker_that_starts_may_take_longer_and_counts_from_its_start() -> None:
    beats = Heartbeats(["a", "b"], 1.0)
    beats.born(["a"], 10.0)
    beats.born(["a"], 11.0)
    now, late = 10.0, list[tuple[str, float]]()
    while not late:
        now += 0.5
        late = beats.late(now, lambda _: 8.0)
    assert late == [("a", 8.5)], "b was not started yet"
    beats.forget("a")
    beats.born(["a", "b"], 19.0)
    assert beats.late(20.25, always) == [("a", 1.25), ("b", 1.25)], "the next process counts too"


def test_a_beat_that_came_before_the_word_of_the_start_counts() -> None:
    beats = Heartbeats(["a"], 1.0)
    beats.beat(["a"], 1.0)
    beats.born(["a"], 1.5)
    assert beats.late(2.25, always) == [("a", 1.25)]


def test_time_in_which_nobody_listened_is_held_against_nobody() -> None:
    beats = Heartbeats(["a"], 15.0)
    assert turns(beats, 0.0, 10.0, "a") == []
    assert beats.late(3600.0, always) == []  # Ctrl-Z, an hour, fg
    assert turns(beats, 3600.5, 3612.0) == []
    assert [name for name, _ in turns(beats, 3612.5, 3620.0)] == ["a"]


def test_who_missed_two_beats_is_quiet_long_before_it_is_late() -> None:
    beats = Heartbeats(["a", "b"], 15.0)
    beats.beat(["a", "b"], 0.0)
    beats.beat(["a"], 8.0)
    assert beats.quiet(8.0) == {"b": 0.0}
    assert beats.late(8.0, always) == []


def test_without_a_limit_nobody_beats_and_nobody_is_late() -> None:
    beats = Heartbeats(["a"], 0.0)
    beats.beat(["a"], 0.0)
    assert period(0.0) == 0.0
    assert beats.late(1e9, always) == []
    assert beats.quiet(1e9) == {}


def test_a_beat_comes_several_times_within_any_limit() -> None:
    assert period(15.0) == 3.0
    assert period(2.0) == 0.4
    assert period(3600.0) == 3.0


@pytest.fixture
def board() -> Iterator[Switchboard]:
    # A short path: sockets' names are limited.
    with tempfile.TemporaryDirectory(prefix="fg-", dir="/tmp") as folder:
        found = Switchboard(folder, ["host-0", "lm.gang-0"], Refusals())
        yield found
        found.close()


def say(board: Switchboard, *messages: list[bytes]) -> None:
    """As a stranger or a worker would, over a connection without a name."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(board.endpoint)
    for message in messages:
        socket.send_multipart(message)
    socket.close(linger=5000)
    context.term()


def test_beats_come_beside_messages_and_name_their_worker(board: Switchboard) -> None:
    say(board, [BEAT, b"host-0"], [BEAT, b"lm.gang-0"], [BEAT, b"host-0"])
    assert board.receive(500) is None, "a beat is no message"
    assert board.beats() == {"host-0", "lm.gang-0"}
    assert board.beats() == set()
    assert board.refused.total == 0


def test_beats_of_nobody_and_of_a_wrong_form_are_counted_and_refused(board: Switchboard) -> None:
    say(board, [BEAT, b"nobody"], [BEAT, b"\xff\xfe"], [BEAT], [BEAT, b"host-0", b"more"])
    assert board.receive(500) is None
    assert board.beats() == set()
    assert board.refused.total == 4
