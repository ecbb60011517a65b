"""A worker begins what it was handed once the blocks of other nodes are here, and meanwhile does
what it can."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.messages import Done, Fetching, Issued, PlainHandle, Update, Updated
from flowgraph.runtime.transport.failures import BlockUnreachable
from flowgraph.runtime.transport.keys import new_keyrings
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.worker import arrivals
from flowgraph.runtime.worker.gang import GangWorker
from flowgraph.runtime.worker.stage import StageWorker
from tests.runtime.transport.workers import Worker, answers, apart, run, spec

ROOT = Path(__file__).parents[3]
ROOM = 2 << 10
"""Bytes for blocks of another node: one of the graph's fits, two do not."""

CREDIT = "train-player.credit"


class There:
    """The other node: its porter is a process, its stage worker is of this one."""

    def __init__(self, plan: Plan, folder: Path, porter: subprocess.Popen[str], keys: str) -> None:
        assert porter.stdout is not None
        self._folder, self._porter = folder, porter
        self.worker = Worker(StageWorker, plan, spec("host-1", 1, folder))
        self.more = {"node": "here", "block_keys": keys}
        self.porters = {"there": porter.stdout.readline().strip()}

    def chosen(self, count: int) -> list[PlainHandle]:
        """Blocks of tasks, that games are played over."""
        made = self.worker.told(*(run(n, "tasks", {}, "chosen") for n in range(count)))
        return [done.outputs["chosen"][0] for done in made if isinstance(done, Done)]

    def stop(self) -> None:
        os.kill(self._porter.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._porter.pid, signal.SIGCONT)


@contextmanager
def other_node(plan: Plan, folder: Path) -> Iterator[There]:
    rings = new_keyrings([porter_of("there"), "host-0"])
    (folder / "keys").mkdir()
    own, keys = (str(ring.write(folder / "keys")) for ring in rings.values())
    command = [sys.executable, "-m", "tests.runtime.transport.process", "porter", own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as porter:
        found = There(plan, folder, porter, keys)
        try:
            yield found
        finally:
            porter.kill()
            found.worker.worker.abandon()  # type: ignore[union-attr]  # it is a stage's


@pytest.fixture
def plan() -> Plan:
    return apart(ROOM)


@pytest.fixture
def there(plan: Plan, tmp_path: Path) -> Iterator[There]:
    with other_node(plan, tmp_path) as found:
        yield found


@pytest.fixture
def reader(plan: Plan, there: There, tmp_path: Path) -> Iterator[Worker]:
    made = spec("host-0", 0, tmp_path, porters=there.porters, fetch_s=5.0, **there.more)
    found = Worker(StageWorker, plan, made)
    yield found
    found.worker.abandon()  # type: ignore[union-attr]


def test_an_item_waits_for_room_and_then_begins_by_itself(there: There, reader: Worker) -> None:
    blocks = there.chosen(3)
    assert [ROOM // 2 < block[4] < ROOM for block in blocks] == [True] * 3
    runs = [run(n, "play", {"chosen": block}, CREDIT) for n, block in enumerate(blocks)]
    said = reader.told(*runs)
    for item in range(3):
        (issued,) = said or reader.waits()
        calls = answers(issued)
        assert len(calls.completions) == 2  # one item's trajectories, and no other's
        done, *said = reader.told(calls)
        assert isinstance(done, Done)
        assert done.item == item


def test_copies_kept_for_ever_end_their_reader_before_they_outgrow_the_budget_by_more_than_one(
    there: There, reader: Worker
) -> None:
    blocks = there.chosen(3)
    runs = [run(n, "play", {"chosen": block}, CREDIT) for n, block in enumerate(blocks)]
    kept = []
    for order, block in zip(runs[:2], blocks, strict=False):
        (issued,) = reader.told(order) or reader.waits()
        kept.append(reader.worker._store.open(block)["hint"].values)
        reader.told(answers(issued))
    with pytest.raises(StageFailed, match=r"'play': keeps [\d,]+ bytes of stream 'chosen' after"):
        reader.told(runs[2])
    assert len(kept) == 2


def test_copies_that_a_thread_keeps_for_a_while_are_waited_for(
    there: There, reader: Worker
) -> None:
    blocks = there.chosen(3)
    runs = [run(n, "play", {"chosen": block}, CREDIT) for n, block in enumerate(blocks)]
    kept = []
    for order, block in zip(runs[:2], blocks, strict=False):
        (issued,) = reader.told(order) or reader.waits()
        kept.append(reader.worker._store.open(block)["hint"].values)
        reader.told(answers(issued))
    ended = threading.Event()
    upload = threading.Thread(target=ended.wait, name="upload")
    upload.start()
    try:
        assert reader.told(runs[2]) == []
        assert reader.worker.timeout_ms() >= 0, "it looks again by itself"
        kept.clear()
        (issued,) = reader.waits()
    finally:
        ended.set()
        upload.join()
    assert isinstance(issued, Issued)


def test_while_a_fetch_is_under_way_other_items_begin_and_end(
    there: There, reader: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the one that waits says so: for what, and from whom."""
    monkeypatch.setattr(arrivals, "LATE_S", 60.0)
    (away,) = there.chosen(1)
    there.stop()
    assert reader.told(run(0, "play", {"chosen": away}, CREDIT)) == []
    (made,) = reader.told(run(1, "tasks", {}, "chosen"))
    assert isinstance(made, Done)
    (issued,) = reader.told(run(1, "play", {"chosen": made.outputs["chosen"][0]}, CREDIT))
    (done,) = reader.told(answers(issued))
    assert isinstance(done, Done)
    assert done.item == 1
    monkeypatch.setattr(arrivals, "LATE_S", 0.0)
    assert reader.waits() == [Fetching(worker="host-0", items=(0,), porters=("porter:there",))]
    there.go_on()
    issued, over = reader.waits()
    assert over == Fetching(worker="host-0", items=(), porters=())
    (done,) = reader.told(answers(issued))
    assert isinstance(done, Done)
    assert done.item == 0


def test_a_block_that_cannot_be_had_ends_its_reader_by_name(
    plan: Plan, there: There, tmp_path: Path
) -> None:
    (away,) = there.chosen(1)
    there.stop()
    made = spec("host-0", 0, tmp_path, porters=there.porters, fetch_s=0.2, **there.more)
    reader = Worker(StageWorker, plan, made)
    assert reader.told(run(0, "play", {"chosen": away}, CREDIT)) == []
    with pytest.raises(BlockUnreachable, match=r"bytes of 'host-1' from porter:there"):
        reader.waits()
    reader.worker.abandon()  # type: ignore[union-attr]


def test_a_rank_works_on_what_is_here_and_updates_only_when_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LATE_S", 0.3)
    plan = apart(1 << 20)
    with other_node(plan, tmp_path) as there:
        here = Worker(StageWorker, plan, spec("host-0", 0, tmp_path))
        credits = [played(worker, n) for n, worker in enumerate((there.worker, here))]
        made = spec("player.gang-0", 0, tmp_path, porters=there.porters, **there.more)
        rank = Worker(GangWorker, plan, made)
        there.stop()
        rank.wire.once(Fetching, there.go_on)
        runs = [run(n, "train-player", {CREDIT: block}) for n, block in enumerate(credits)]
        said = rank.told(*runs, update())
        here.worker.abandon()  # type: ignore[union-attr]
    names = [type(message).__name__ for message in said]
    assert names == ["Done", "Fetching", "Fetching", "Done", "Updated"]
    assert [message.item for message in said if isinstance(message, Done)] == [1, 0]
    assert isinstance(said[-1], Updated)


def played(worker: Worker, item: int) -> PlainHandle:
    """A game's rows, with their credit."""
    (made,) = worker.told(run(item, "tasks", {}, "chosen"))
    assert isinstance(made, Done)
    (issued,) = worker.told(run(item, "play", {"chosen": made.outputs["chosen"][0]}, CREDIT))
    (done,) = worker.told(answers(issued))
    assert isinstance(done, Done)
    return done.outputs[CREDIT][0]


def update() -> Update:
    return Update(step=0, part=0, version=1, divisor=2.0, owners=((0, 0), (1, 0)), publish=False)
