"""Reading a run's journal, while the run goes on or after it has ended, however it ended."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.journal import SCHEMA, SENT, VERSION
from flowgraph.runtime.messages import Message, decode

FILE = "journal.db"
PLAN = "plan.fgplan"
"""What makes a folder that of a run."""

WAIT_S = 5.0
"""How long a reader waits for a writer that is just putting the file in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A sample that was put aside: where it failed, why, and the traceback's text."""

    sample: int
    stage: str
    cause: str
    place: str
    traceback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """began: seconds since the epoch. step: the one it began with. cause: of a new one, or ""."""

    attempt: int
    began: float
    step: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What became of a run, less its messages.

    restarts: (what, cause). drops: samples left out, by reason, in all attempts, each once.
    checkpoints: steps after which one was made.
    """

    attempts: tuple[Attempt, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    restarts: tuple[tuple[str, str], ...] = ()
    drops: tuple[tuple[str, int], ...] = ()
    checkpoints: tuple[int, ...] = ()


def read_messages(folder: Path) -> Iterator[tuple[float, bool, str, Message]]:
    """(seconds, whether it was sent, worker, message) of all attempts, in order.

    Raises ConfigurationError for a folder without a journal.
    """
    with closing(_open(folder)) as connection:
        rows = connection.execute(
            "SELECT at, direction, worker, payload FROM messages "
            "WHERE direction IN ('received', 'sent') ORDER BY id"
        )
        for at, direction, worker, payload in rows:
            yield at, direction == SENT, worker, decode(payload)


def last_messages(
    folder: Path, names: Sequence[str], most: int
) -> list[tuple[float, str, Message]]:
    """(seconds, worker, message) of the last attempt's last `most` messages of these types.

    In order; none for a folder without a journal.
    """
    if not (folder / FILE).is_file():
        return []
    wanted = ", ".join("?" for _ in names)
    with closing(_open(folder)) as connection:
        rows = connection.execute(
            f"SELECT at, worker, payload FROM messages WHERE name IN ({wanted}) "
            "AND direction IN ('received', 'sent') "
            "AND attempt = (SELECT max(attempt) FROM attempts) ORDER BY id DESC LIMIT ?",
            (*names, most),
        ).fetchall()
    return [(at, worker, decode(payload)) for at, worker, payload in reversed(rows)]


def read_story(folder: Path) -> Story:
    """Raises ConfigurationError for a folder without a journal, or with a damaged one."""
    with closing(_open(folder)) as connection:
        try:
            return _story(connection)
        except sqlite3.Error as error:
            raise _damaged(folder, error) from error


def read_status(folder: Path) -> tuple[float, dict[str, Any]] | None:
    """(when, in seconds since the epoch; the last known state); None before the first.

    Raises ConfigurationError for a folder without a journal, or with a damaged one.
    """
    with closing(_open(folder)) as connection:
        try:
            row = connection.execute("SELECT at, data FROM status").fetchone()
        except sqlite3.Error as error:
            raise _damaged(folder, error) from error
    return None if row is None else (float(row[0]), json.loads(row[1]))


def _story(connection: sqlite3.Connection) -> Story:
    attempts = connection.execute("SELECT attempt, began, step, cause FROM attempts ORDER BY 1")
    put_aside = connection.execute(
        "SELECT sample, stage, cause, place, traceback FROM quarantined ORDER BY 1"
    )
    restarts = connection.execute("SELECT what, cause FROM restarts ORDER BY rowid")
    drops = connection.execute(
        "SELECT reason, count(DISTINCT sample) FROM drops GROUP BY reason ORDER BY reason"
    )
    checkpoints = connection.execute("SELECT step FROM checkpoints ORDER BY step")
    return Story(
        attempts=tuple(Attempt(attempt=a, began=b, step=s, cause=c) for a, b, s, c in attempts),
        quarantined=tuple(
            Quarantined(sample=s, stage=stage, cause=cause, place=place, traceback=trace)
            for s, stage, cause, place, trace in put_aside
        ),
        restarts=tuple(restarts),
        drops=tuple(drops),
        checkpoints=tuple(step for (step,) in checkpoints),
    )


def _open(folder: Path) -> sqlite3.Connection:
    """Of a run that was killed before its journal was made: an empty one."""
    file = folder / FILE
    if not file.is_file():
        if (folder / PLAN).is_file():
            return _empty()
        raise ConfigurationError(
            f"{folder} is no run directory: it has no {FILE}",
            hint="a folder that `flowgraph run` made",
        )
    try:
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT_S
        )
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise _damaged(folder, error) from error
    if version != VERSION:
        connection.close()
        if version == 0:  # what is made last is its version
            return _empty()
        raise ConfigurationError(f"{file} is a journal of version {version}, not {VERSION}")
    return connection


def _empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMA)
    return connection


def _damaged(folder: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{folder / FILE} cannot be read: {error}")
