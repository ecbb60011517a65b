"""A block stays leased while an item reads it, and after that while anything looks at it."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.messages import BlockName, Free
from flowgraph.runtime.pool import Handle, Reader, Segment
from flowgraph.runtime.reader import MOST_DEAD
from flowgraph.runtime.worker.leases import Leases, name_of
from flowgraph.runtime.worker.output import Store

BUDGET = 1 << 16


def block(value: int, rows: int = 8) -> Batch:
    return Batch(rows, {"x": Column("int64", np.full(rows, value, np.int64))})


def written(segment: Segment, value: int) -> Handle:
    handle = segment.try_write(block(value))
    assert handle is not None
    return handle


def named(handle: Handle) -> BlockName:
    return name_of(handle.to_plain())


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Cycle:
    """Garbage that only a search for cycles finds."""

    def __init__(self, kept: object) -> None:
        self.kept = kept
        self.me = self


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_reader_knows_whether_any_view_of_a_block_is_left_whatever_became_of_it() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    handle = written(segment, 7)
    name = named(handle)
    assert not reader.views(name)
    batch = reader.open(handle)
    piece = batch["x"].values[2:5].reshape(3, 1)
    tensor = torch.from_numpy(piece).view(-1)
    del batch
    assert reader.views(name)
    del piece
    assert reader.views(name), "a tensor is a view, too"
    assert tensor.tolist() == [7, 7, 7]
    rows = reader.open(handle).to_rows()
    del tensor
    assert not reader.views(name), "scalars were copied"
    assert rows[0] == {"x": 7}


def test_a_block_that_is_opened_twice_is_viewed_until_both_are_gone() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    handle = written(segment, 7)
    first, second = reader.open(handle), reader.open(handle)
    del first
    assert reader.views(named(handle))
    del second
    assert not reader.views(named(handle))


def test_a_reader_remembers_no_more_than_what_is_viewed() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    kept = reader.open(written(segment, 1))
    for value in range(10 * MOST_DEAD):
        handle = written(segment, value)
        reader.open(handle)
        segment.free(handle)
    assert len(reader._viewed) <= 2 * MOST_DEAD
    assert kept["x"].values.tolist() == [1] * 8


def test_an_item_that_keeps_nothing_holds_nothing() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    leases = Leases(reader.views)
    handle = written(segment, 1)
    leases.begin(5, [named(handle)])
    batch = reader.open(handle)
    assert batch.rows == 8
    del batch
    assert leases.end(5) == ()
    assert (len(leases), leases.holds) == (0, False)


def test_what_is_looked_at_after_its_item_is_held_until_it_is_not() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    leases = Leases(reader.views)
    handles = [written(segment, value) for value in range(3)]
    leases.begin(0, map(named, handles))
    views = [reader.open(handle)["x"].values for handle in handles]
    del views[1]
    assert leases.end(0) == (named(handles[0]), named(handles[2]))
    assert leases.gone() == ()
    del views[0]
    assert leases.gone() == (named(handles[0]),)
    assert leases.gone() == ()
    assert leases.holds
    views.clear()
    assert leases.gone() == (named(handles[2]),)
    assert not leases.holds


def test_a_block_that_another_item_reads_is_that_items_to_hold() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    leases = Leases(reader.views)
    handle = written(segment, 1)
    leases.begin(0, [named(handle)])
    leases.begin(1, [named(handle)])
    view = reader.open(handle)
    assert leases.end(0) == ()
    assert leases.end(1) == (named(handle),)
    leases.begin(2, [named(handle)])
    assert leases.end(2) == (), "it is held already, which was told"
    del view
    assert leases.gone() == (named(handle),)


def test_garbage_of_the_item_itself_holds_nothing() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    leases = Leases(reader.views)
    handle = written(segment, 1)
    with no_garbage_collected():
        leases.begin(0, [named(handle)])
        Cycle(reader.open(handle))
        assert reader.views(named(handle))
        assert leases.end(0) == ()


def test_old_garbage_holds_until_it_is_recalled() -> None:
    segment, reader = Segment("worker-0", BUDGET), Reader()
    leases = Leases(reader.views)
    handle = written(segment, 1)
    with no_garbage_collected():
        leases.begin(0, [named(handle)])
        cycle = Cycle(reader.open(handle))
        gc.collect()  # it is old now
        del cycle
        assert leases.end(0) == (named(handle),)
        assert leases.gone() == ()
        assert leases.recalled() == (named(handle),)


def test_a_place_is_written_anew_only_when_its_last_view_is_gone() -> None:
    """A store on each side, and the orchestrator's part in a line: free what is not held."""
    writer, reader = Store("writer-0", BUDGET), Store("reader-0", BUDGET)

    def no_room(_: str, __: int) -> None:
        raise AssertionError("there is room")

    kept: list[tuple[int, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]] = []
    held: dict[BlockName, tuple[int, int]] = {}
    for value in range(200):
        handle = writer.write(block(value), "rows", no_room)
        reader.leases.begin(value, [name_of(handle)])
        values = reader.open(handle)["x"].values
        if value % 3 == 0:
            kept.append((value, values))
        kept = kept[-20:]
        del values
        for name in reader.leases.end(value):
            held[name] = name[1:]
        for name in reader.leases.gone():
            writer.free(Free(blocks=(held.pop(name),)))
        if name_of(handle) not in held:
            writer.free(Free(blocks=(name_of(handle)[1:],)))
        for was, array in kept:
            assert array.tolist() == [was] * 8
    assert len(held) == 20
