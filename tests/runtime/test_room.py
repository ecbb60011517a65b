"""A worker that waits for room: what it says, what it still answers, and what ends its wait."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.messages import BlockName, Free, Full, Message, Recall, Released, Save, Stop
from flowgraph.runtime.worker.grace import GRACE_S, Grace
from flowgraph.runtime.worker.leases import name_of
from flowgraph.runtime.worker.output import Store
from flowgraph.runtime.worker.room import Room, RunOver
from tests.runtime.orchestrator.live import Wire

BUDGET = 1 << 12


def block(value: int, rows: int = 300) -> Batch:
    return Batch(rows, {"x": Column("int64", np.full(rows, value, np.int64))})


class Writer:
    """A worker whose pool holds one block; what it says is on its wire.

    script: what comes once nothing else does, one message at a time.
    """

    def __init__(self) -> None:
        self.script: list[Message] = []
        self.come: Callable[[str], None] = lambda _: self.wire.inbox.append(self.script.pop(0))
        self.wire = Wire("host-0", 0, lambda token: self.come(token))
        self.store = Store("host-0", BUDGET)
        self.now = 0.0
        self.coroutines = False
        grace = Grace(lambda: self.coroutines, lambda: self.now)
        self.room = Room("host-0", self.wire, self.store, grace)
        self.put_off: list[Message] = []
        self.handle = self.write(0)

    def write(self, value: int) -> tuple[object, ...]:
        return self.store.write(block(value), "rows", self._wait)

    def _wait(self, stream: str, nbytes: int) -> None:
        self.room.wait(stream, nbytes, self.put_off.extend)

    def free(self) -> Free:
        return Free(blocks=(name_of(self.handle)[1:],))


def test_it_says_what_finds_no_room_and_waits_for_a_block_to_be_free() -> None:
    writer = Writer()
    later = [Save(step=1, folder="a"), Save(step=2, folder="b")]
    writer.wire.inbox.extend([later[0], writer.free(), later[1]])
    writer.write(1)
    assert list(writer.wire.said) == [Full(worker="host-0", stream="rows", nbytes=2432, freed=0)]
    assert writer.put_off == later


def test_it_says_so_again_when_what_was_freed_is_not_enough() -> None:
    writer = Writer()
    writer.script += [Free(blocks=()), Save(step=1, folder="a"), writer.free()]
    writer.write(1)
    assert [full.freed for full in writer.wire.said if isinstance(full, Full)] == [0, 1]


def test_it_answers_while_it_waits_what_it_need_not_hold() -> None:
    writer = Writer()
    name = name_of(writer.handle)
    writer.store.leases.begin(5, [name])
    view = writer.store.open(writer.handle)["x"].values
    assert writer.store.leases.end(5) == (name,)
    del view
    writer.wire.inbox.extend([Recall(), writer.free()])
    writer.write(1)
    assert list(writer.wire.said)[1:] == [Released(worker="host-0", blocks=(name,), asked=True)]


def test_what_was_let_go_is_told_once_and_unasked() -> None:
    writer = Writer()
    name = name_of(writer.handle)
    writer.store.leases.begin(5, [name])
    view = writer.store.open(writer.handle)["x"].values
    assert writer.store.leases.end(5) == (name,)
    writer.room.look()
    assert not writer.wire.said
    del view
    writer.room.look()
    writer.room.look()
    assert list(writer.wire.said) == [Released(worker="host-0", blocks=(name,), asked=False)]


def holds(writer: Writer) -> tuple[BlockName, list[object]]:
    """It holds its block, as long as the list holds a view."""
    name = name_of(writer.handle)
    writer.store.leases.begin(5, [name])
    views: list[object] = [writer.store.open(writer.handle)["x"].values]
    assert writer.store.leases.end(5) == (name,)
    return name, views


@contextmanager
def a_thread_of_the_users() -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="upload")
    thread.start()
    yield
    ended.set()
    thread.join()


def test_nobody_here_could_let_go_so_it_answers_at_once() -> None:
    writer = Writer()
    _, views = holds(writer)
    writer.room.recall()
    assert views
    assert list(writer.wire.said) == [Released(worker="host-0", blocks=(), asked=True)]
    assert writer.room.wake_in() is None


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_thread_or_coroutine_may_let_go_before_it_answers(coroutine: bool) -> None:
    writer = Writer()
    name, views = holds(writer)
    writer.coroutines = coroutine
    with nullcontext() if coroutine else a_thread_of_the_users():
        writer.room.recall()
        writer.room.look()
        assert not writer.wire.said
        assert writer.room.wake_in() is not None
        views.clear()
        writer.room.look()
    assert list(writer.wire.said) == [Released(worker="host-0", blocks=(name,), asked=True)]
    assert writer.room.wake_in() is None


def test_a_thread_that_does_not_let_go_in_time_is_not_waited_for() -> None:
    writer = Writer()
    _, views = holds(writer)
    with a_thread_of_the_users():
        writer.room.recall()
        writer.now = GRACE_S
        writer.room.look()
        writer.room.look()
    assert views
    assert list(writer.wire.said) == [Released(worker="host-0", blocks=(), asked=True)]


def test_a_thread_may_let_go_while_it_waits_for_room_itself() -> None:
    writer = Writer()
    name, views = holds(writer)

    def later(_: str) -> None:
        """Nothing comes before the thread has let go."""
        if views:
            views.clear()
            writer.wire.inbox.append(Save(step=1, folder="a"))
        else:
            writer.wire.inbox.append(writer.free())

    writer.wire.inbox.append(Recall())
    writer.come = later
    with a_thread_of_the_users():
        writer.write(1)
    assert list(writer.wire.said)[1:] == [Released(worker="host-0", blocks=(name,), asked=True)]


def test_the_end_of_the_run_ends_its_wait() -> None:
    writer = Writer()
    writer.wire.inbox.append(Stop(checkpoint=""))
    with pytest.raises(RunOver):
        writer.write(1)
