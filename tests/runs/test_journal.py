"""What a real run leaves in its journal, and that a killed one leaves a whole one."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flowgraph.runtime.journal_reader import read_messages, read_story
from flowgraph.runtime.messages import Ready, Run, Stopped
from tests.runs.command import start, wait_for
from tests.runs.running import GRAPHS, plan_of, run

LETTERS = GRAPHS / "letters.py"


def rows(folder: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(folder / "journal.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.slow
def test_every_message_is_there_in_order_with_what_set_it_off(tmp_path: Path) -> None:
    plan = plan_of(LETTERS, {"odd_only": "true"})
    run(plan, tmp_path / "run", checkpoint_every=1)
    folder = tmp_path / "run"
    messages = [message for _, _, _, message in read_messages(folder)]
    assert {type(m) for m in messages[:2]} == {Ready}
    assert isinstance(messages[-1], Stopped)
    assert any(isinstance(message, Run) for message in messages)
    orphans = rows(
        folder,
        "SELECT sent.name FROM messages AS sent "
        "LEFT JOIN messages AS cause ON cause.id = sent.cause WHERE sent.direction = 'sent' "
        "AND (cause.id IS NULL OR cause.direction = 'sent' OR cause.id > sent.id)",
    )
    assert orphans == []
    updates = rows(
        folder,
        "SELECT DISTINCT cause.name FROM messages AS sent JOIN messages AS cause "
        "ON cause.id = sent.cause WHERE sent.name = 'Update'",
    )
    assert updates == [("Done",)]
    story = read_story(folder)
    assert story.checkpoints == (1, 2, 3)
    assert [attempt.step for attempt in story.attempts] == [0]
    ((reason, count),) = story.drops
    assert reason == "filter 'odd'"
    assert count >= 23
    assert not list(folder.glob("journal.db-*")), "one file is left"


@pytest.mark.slow
def test_a_killed_run_leaves_a_journal_that_reads_up_to_the_last_moments(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start("run", str(LETTERS), "--set", "steps=100000", "--run-dir", str(folder))
    wait_for(process, "step ")
    wait_for(process, "step ")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    steps = [m.step for _, _, _, m in read_messages(folder) if isinstance(m, Run)]
    assert max(steps) > 3
    assert [attempt.cause for attempt in read_story(folder).attempts] == [""]
