"""The journal: batched, never lost at a checkpoint, readable while it is written."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime import journal as journal_file
from flowgraph.runtime.failures import CannotWrite
from flowgraph.runtime.journal import BATCH, RECEIVED, SENT, Journal
from flowgraph.runtime.journal_reader import read_messages, read_status, read_story
from flowgraph.runtime.messages import Free, Ready, encode

READY = encode(Ready(worker="host-0", pid=7, sizes={}))
FREE = encode(Free(blocks=((0, 1),)))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def count(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        (found,) = connection.execute("SELECT count(*) FROM messages").fetchone()
        return int(found)


def test_messages_come_back_in_order_with_their_direction(journal: Journal) -> None:
    journal.attempt(0, "")
    first = journal.message(0.25, RECEIVED, "host-0", "Ready", READY, None)
    assert journal.message(0.5, SENT, "host-0", "Free", FREE, first) == first + 1
    journal.close()
    found = list(read_messages(journal.file.parent))
    assert [(at, sent, worker) for at, sent, worker, _ in found] == [
        (0.25, False, "host-0"),
        (0.5, True, "host-0"),
    ]
    assert [encode(message) for _, _, _, message in found] == [READY, FREE]


def test_a_checkpoint_puts_all_before_it_on_disk_and_so_does_a_quarantined_sample(
    journal: Journal,
) -> None:
    for number in range(10):
        journal.message(0.1, RECEIVED, "host-0", "Ready", READY, None)
        if number == 4:
            journal.checkpoint(0.1, 1)
            assert count(journal.file) == 5
    journal.quarantine(7, "check", "ValueError: no", "a.py:3", "Traceback ...")
    assert count(journal.file) == 10
    story = read_story(journal.file.parent)
    assert story.checkpoints == (1,)
    assert [(one.sample, one.place) for one in story.quarantined] == [(7, "a.py:3")]
    assert journal.quarantined() == [7]
    journal.close()


def test_a_full_batch_is_written_at_once_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "EVERY_S", 60.0)
    journal = Journal(tmp_path / "journal.db")
    written = threading.Event()
    journal._connection.set_trace_callback(
        lambda statement: written.set() if statement.startswith("COMMIT") else None
    )
    for _ in range(BATCH):
        journal.message(0.1, RECEIVED, "host-0", "Ready", READY, None)
    assert written.wait(10.0)
    journal.close()


def test_numbers_go_on_where_an_earlier_run_ended(journal: Journal) -> None:
    journal.attempt(0, "")
    last = journal.message(0.1, RECEIVED, "host-0", "Ready", READY, None)
    journal.close()
    again = Journal(journal.file)
    assert again.attempt(3, "worker host-0 was killed") == 2
    assert again.message(0.0, RECEIVED, "host-0", "Ready", READY, None) == last + 1
    again.close()
    attempts = read_story(journal.file.parent).attempts
    assert [(one.attempt, one.step, one.cause) for one in attempts] == [
        (1, 0, ""),
        (2, 3, "worker host-0 was killed"),
    ]


def test_it_is_read_while_it_is_written(journal: Journal) -> None:
    assert read_status(journal.file.parent) is None
    journal.status('{"step": 1}')
    journal.status('{"step": 2}')
    journal.flush()
    found = read_status(journal.file.parent)
    assert found is not None
    assert found[1] == {"step": 2}
    journal.close()


def test_drops_are_counted_by_reason_once_in_all_attempts(journal: Journal) -> None:
    journal.attempt(0, "")
    for sample in (3, 5):
        journal.drop(0.1, 1, sample, "filter 'odd'")
    journal.attempt(1, "again")
    for sample in (5, 7, 7):
        journal.drop(0.1, 1, sample, "filter 'odd'")
    journal.drop(0.1, 2, 8, "late")
    journal.close()
    assert read_story(journal.file.parent).drops == (("filter 'odd'", 3), ("late", 1))


def test_a_file_that_cannot_be_written_is_named_at_the_next_call_and_once(
    journal: Journal,
) -> None:
    with journal._lock:
        journal._connection.execute("PRAGMA max_page_count = 1")
    for _ in range(100):
        journal.message(0.1, RECEIVED, "host-0", "Ready", READY * 1000, None)
    with pytest.raises(CannotWrite, match=r"journal\.db: database or disk is full"):
        journal.flush()
    assert journal.failed
    with pytest.raises(CannotWrite):
        journal.message(0.1, RECEIVED, "host-0", "Ready", READY, None)
    journal.close()


def test_what_waits_is_bounded_by_writing_it(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_file, "MOST_QUEUED", 10)
    monkeypatch.setattr(journal_file, "BATCH", 5)
    for _ in range(1000):
        journal.message(0.1, RECEIVED, "host-0", "Ready", READY, None)
        assert len(journal._queue) < 10
    journal.close()
    assert count(journal.file) == 1000


def test_a_folder_without_one_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no run directory"):
        read_story(tmp_path)


def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_text("no database " * 100)
    with pytest.raises(ConfigurationError, match=r"journal\.db cannot be read"):
        read_status(tmp_path)
