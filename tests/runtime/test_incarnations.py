"""A lost process and its successor: memory that is kept, connections that are told apart."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowgraph.runtime.failures import OwnerGone
from flowgraph.runtime.incarnation import process_of, token_of
from flowgraph.runtime.messages import Free, Loaded, encode
from flowgraph.runtime.pool import Handle, Reader, Segment, new_memory
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.switchboard import Switchboard
from flowgraph.runtime.worker.link import Link
from tests.runtime.pool_process import from_line, sample_batch, to_line

BUDGET = 1 << 20
WAIT_MS = 5000


@pytest.mark.parametrize(("incarnation", "token"), [(0, "lm.gang-1"), (1, "lm.gang-1#1")])
def test_a_token_names_a_worker_and_which_of_its_processes(incarnation: int, token: str) -> None:
    assert token_of("lm.gang-1", incarnation) == token
    assert process_of(token) == ("lm.gang-1", incarnation)


def written_by_a_process_that_is_killed(memory: int, owner: int) -> Handle:
    """The handle that a child wrote before it was killed with -9."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        segment = Segment("host-0", BUDGET, fd=memory, pid=owner)
        handle = segment.try_write(sample_batch())
        assert handle is not None
        os.write(write, to_line(handle).encode())
        os.close(write)
        signal.pause()
    os.close(write)
    with os.fdopen(read) as told:
        line = told.read()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return from_line(line)


def test_what_a_killed_process_had_written_is_read_for_as_long_as_its_memory_is_kept() -> None:
    memory = new_memory("host-0", BUDGET)
    handle = written_by_a_process_that_is_killed(memory, os.getpid())
    assert Reader().open(handle).equals(sample_batch())
    os.close(memory)
    with pytest.raises(OwnerGone):
        Reader().open(handle)


def test_a_reader_holds_no_memory_of_a_lost_process_once_it_has_read_from_the_next() -> None:
    reader = Reader()
    first = Segment("host-0", BUDGET)
    old = first.try_write(sample_batch())
    assert old is not None
    batch = reader.open(old)
    second = Segment("host-0#1", BUDGET)
    new = second.try_write(sample_batch(3))
    assert new is not None
    assert reader.open(new).equals(sample_batch(3))
    first.close()
    with pytest.raises(OwnerGone):
        reader.open(old)
    assert batch.equals(sample_batch()), "views that were handed out stay"


@contextmanager
def board(folder: Path, listen: str) -> Iterator[Switchboard]:
    made = Switchboard(str(folder), ["host-0", "host-1"], Refusals(), listen)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def linked(made: Switchboard, incarnation: int) -> Iterator[Link]:
    link = Link("host-0", made.endpoint, made.key_file("host-0"), incarnation)
    try:
        yield link
    finally:
        link.close()


def loaded(version: int) -> Loaded:
    return Loaded(worker="host-0", version=version, busy_s=0.0)


@pytest.mark.parametrize("listen", ["", "tcp"])
def test_the_next_process_of_a_worker_is_heard_while_the_last_ones_words_are_counted(
    listen: str, tmp_path: Path
) -> None:
    with board(tmp_path, listen) as made, linked(made, 0) as lost:
        lost.send(loaded(1))
        assert made.receive(WAIT_MS) is not None
        made.replace("host-0", token_of("host-0", 1))
        with linked(made, 1) as successor:
            lost.send(loaded(2))
            successor.send(loaded(3))
            heard = made.receive(WAIT_MS)
            for _ in range(1000):  # the lost one's word may come later than its successor's
                if made.refused.total == 0:
                    successor.send(loaded(4))
                    assert made.receive(WAIT_MS) is not None
            assert heard is not None
            name, message, _ = heard
            assert name == "host-0"
            assert isinstance(message, Loaded)
            assert (message.version, message.incarnation) == (3, 1)
            assert made.refused.of("late message") == 1
            made.send("host-0", encode(Free(blocks=((64, 1),))))
            assert successor.receive(WAIT_MS) == [Free(blocks=((64, 1),))]


def test_a_process_that_was_not_announced_is_a_stranger(tmp_path: Path) -> None:
    with board(tmp_path, "") as made, linked(made, 5) as link:
        link.send(loaded(1))
        assert made.receive(500) is None
        assert made.refused.of("unknown identity") == 1
