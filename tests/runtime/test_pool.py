"""The pool: zero copies between processes, bounded memory, no stale reads, nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

from flowgraph.ir.types import AGENT_ROW
from flowgraph.runtime.batch import ALIGN, Batch, Column
from flowgraph.runtime.failures import BlockTooLarge, OwnerGone, StaleHandle
from flowgraph.runtime.pool import Handle, Reader, Segment, new_spill
from tests.runtime.pool_process import from_line, sample_batch, to_line

BUDGET = 1 << 20


def written(segment: Segment, batch: Batch) -> Handle:
    handle = segment.try_write(batch)
    assert handle is not None
    return handle


def block(nbytes: int) -> Batch:
    return Batch(1, {"x": Column("uint8", np.ones((1, nbytes), np.uint8))})


@contextmanager
def process(role: str) -> Iterator[subprocess.Popen[str]]:
    """A pool process that is killed and reaped at the end, whatever happens."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.pool_process", role],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def ask(child: subprocess.Popen[str], line: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def shared_files() -> set[str]:
    return set(os.listdir("/dev/shm"))


def test_another_process_reads_without_a_copy() -> None:
    segment = Segment("worker-0", BUDGET)
    handle = written(segment, sample_batch())
    with process("read") as child:
        assert ask(child, to_line(handle)) == f"sum {7 * 999 * 500}"
        segment.free(handle)
        assert ask(child, to_line(handle)) == "StaleHandle"
        again = written(segment, sample_batch(10))
        assert again.offset == handle.offset
        assert ask(child, to_line(handle)) == "StaleHandle"
        assert ask(child, to_line(again)) == f"sum {7 * 45}"


def test_bytes_outlive_an_owner_that_was_killed_and_nothing_stays_behind() -> None:
    before = shared_files()
    reader = Reader()
    with process("own") as child:
        handle = from_line(first_line(child))
        batch = reader.open(handle)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert batch.equals(sample_batch())
        assert reader.open(handle).equals(sample_batch())
        with pytest.raises(OwnerGone, match=f"'owner-0' \\(pid {child.pid}\\)"):
            Reader().open(handle)
    reader.forget(handle.pid)
    with pytest.raises(OwnerGone):
        reader.open(handle)
    assert batch.equals(sample_batch())
    assert shared_files() <= before


def test_views_are_of_the_owners_memory_itself() -> None:
    segment = Segment("worker-0", BUDGET)
    reader = Reader()
    handle = written(segment, sample_batch(4))
    view = reader.open(handle)["x"].values
    segment.free(handle)
    written(segment, Batch(4, {"x": Column("int64", np.full(4, 5, np.int64))}))
    assert view.tolist() == [5, 5, 5, 5]
    assert not view.flags.writeable


def test_any_batch_comes_back_as_it_was() -> None:
    row = {
        "sample": 1,
        "trajectory": 2,
        "call": 0,
        "tokens": [1, 2, 3],
        "loss_mask": [0.0, 1.0, 1.0],
        "logprobs": [0.0, -1.0, -2.0],
        "versions": [-1, 4, 4],
        "reward": 0.5,
    }
    segment = Segment("worker-0", BUDGET)
    reader = Reader()
    for batch in (Batch.from_rows(AGENT_ROW, [row] * 3), Batch.empty(AGENT_ROW)):
        handle = written(segment, batch)
        wired = Handle.from_plain(msgpack.unpackb(msgpack.packb(handle.to_plain())))
        assert wired == handle
        assert reader.open(wired).equals(batch)
        assert handle.rows == batch.rows


def test_a_full_segment_asks_to_wait_until_something_is_freed() -> None:
    segment = Segment("worker-0", BUDGET)
    first = written(segment, block(BUDGET // 2))
    second = written(segment, block(BUDGET // 4))
    assert segment.try_write(block(BUDGET // 2)) is None
    segment.free(first)
    third = written(segment, block(BUDGET // 2))
    assert (segment.blocks, segment.high_water) == (2, segment.used)
    segment.free(second)
    segment.free(third)
    assert (segment.blocks, segment.used) == (0, 0)


def test_a_block_larger_than_the_segment_is_an_error_that_names_stream_and_sizes() -> None:
    segment = Segment("worker-0", BUDGET)
    with pytest.raises(BlockTooLarge) as caught:
        segment.try_write(block(BUDGET), "games.solver")
    assert "stream 'games.solver': a block of 1 records takes 1048640 bytes" in str(caught.value)
    assert "the pool segment of 'worker-0' has 1048576" in str(caught.value)


def test_memory_is_taken_as_blocks_need_it_and_never_beyond_the_budget() -> None:
    segment = Segment("worker-0", 1 << 26)
    used = [resident(segment)]
    handle = written(segment, block(1 << 20))
    used.append(resident(segment))
    for _ in range(100):  # the same pages again
        segment.free(handle)
        handle = written(segment, block(1 << 20))
    used.append(resident(segment))
    while segment.try_write(block(1 << 20)) is not None:
        pass
    used.append(resident(segment))
    assert used[0] == 0
    assert used[1] == used[2] == 1 << 22
    assert used[3] == 1 << 26


def resident(segment: Segment) -> int:
    return os.stat(segment._fd).st_blocks * 512


def test_freeing_twice_or_what_is_not_ours_is_refused() -> None:
    segment, other = Segment("worker-0", BUDGET), Segment("worker-1", BUDGET)
    handle = written(segment, sample_batch())
    with pytest.raises(StaleHandle, match="not a block of 'worker-1'"):
        other.free(handle)
    segment.free(handle)
    with pytest.raises(StaleHandle, match="freed twice"):
        segment.free(handle)
    written(segment, sample_batch())
    with pytest.raises(StaleHandle):
        segment.free(handle)


def test_a_block_freed_after_it_was_opened_is_noticed_when_checked() -> None:
    segment = Segment("worker-0", BUDGET)
    reader = Reader()
    handle = written(segment, sample_batch())
    reader.open(handle)
    reader.check(handle)
    segment.free(handle)
    with pytest.raises(StaleHandle, match=f"generation {handle.generation}: the block was freed"):
        reader.check(handle)


def test_a_descriptor_that_now_is_another_segment_is_mapped_anew() -> None:
    reader = Reader()
    first = Segment("worker-0", BUDGET)
    old = written(first, sample_batch())
    reader.open(old)
    first.close()
    second = Segment("worker-1", BUDGET)  # gets the number of the descriptor closed just now
    other = Batch(1000, {"x": Column("int64", np.zeros(1000, np.int64))})
    new = written(second, other)
    assert (new.pid, new.fd, new.offset, new.nbytes) == (old.pid, old.fd, old.offset, old.nbytes)
    assert reader.open(new).equals(other)
    with pytest.raises(StaleHandle):
        reader.open(old)


def test_a_descriptor_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    segment = Segment("worker-0", BUDGET)
    handle = written(segment, sample_batch())
    with (tmp_path / "file").open("rb") as file, pytest.raises(OwnerGone, match="not a pool"):
        Reader().open(replace(handle, fd=file.fileno()))


@pytest.mark.parametrize(("offset", "nbytes"), [(32, 8064), (1 << 40, 8064), (0, 1 << 40)])
def test_a_handle_outside_its_segment_is_refused(offset: int, nbytes: int) -> None:
    segment = Segment("worker-0", BUDGET)
    handle = written(segment, sample_batch())
    with pytest.raises(StaleHandle):
        Reader().open(replace(handle, offset=offset, nbytes=nbytes))


@pytest.mark.parametrize("plain", [(), ("w", 1, 2), ("w", 1, 2, 3, -4, 5, 6, ()), (1,) * 8])
def test_what_is_no_handle_is_refused(plain: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="not a pool handle"):
        Handle.from_plain(plain)


def test_a_spill_reads_as_memory_does_and_has_no_name(tmp_path: Path) -> None:
    segment = Segment("worker-0", BUDGET, fd=new_spill(str(tmp_path), BUDGET), on_disk=True)
    handles = [written(segment, sample_batch(rows)) for rows in (1000, 3, 5000)]
    assert list(tmp_path.iterdir()) == []
    reader = Reader()
    assert [reader.open(handle).equals(sample_batch(handle.rows)) for handle in handles] == [
        True
    ] * 3
    segment.free(handles[1])
    with pytest.raises(StaleHandle):
        reader.open(handles[1])


@contextmanager
def small_disk(folder: Path, nbytes: int) -> Iterator[None]:
    """A file system of that size. The test is skipped where none may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "none", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_no_room_and_not_an_error(tmp_path: Path) -> None:
    with small_disk(tmp_path, 10 << 20):
        fd = new_spill(str(tmp_path), 1 << 26)
        segment = Segment("worker-0", 1 << 26, fd=fd, on_disk=True)
        first = written(segment, block(6 << 20))
        assert segment.try_write(block(6 << 20)) is None
        assert segment.used == ALIGN + (6 << 20)
        segment.free(first)
        written(segment, block(6 << 20))
        segment.close()


def test_of_a_worker_only_the_process_that_was_read_last_stays_mapped() -> None:
    """All its segments do (its pool, its spill), and none of its predecessor's."""
    reader = Reader()
    before = [Segment("worker-0", BUDGET), Segment("worker-0", BUDGET)]
    after = [Segment("worker-0#1", BUDGET), Segment("worker-0#1", BUDGET)]
    old, new = ([written(segment, sample_batch()) for segment in own] for own in (before, after))
    for handle in (*old, *new):
        reader.open(handle)
    for handle in new:
        reader.check(handle)
    for handle in old:
        with pytest.raises(StaleHandle):
            reader.check(handle)
