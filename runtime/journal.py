"""The journal of a run, `journal.db`: what was said, by whom, when, and because of what.

A SQLite file in WAL mode, so that others may read it while the run goes on, and whatever kills the
run leaves a whole file behind. Written by a thread of its own, a batch at most `EVERY_S` seconds
or `BATCH` messages after it was handed over: the run's loop only queues. `flush` puts all that was
handed over on disk; it is called at every checkpoint and for what must not be lost.

Assumes one writer, which `RunLock` sees to. Read it with `journal_reader.py`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from flowgraph.runtime.failures import CannotWrite

VERSION = 1
BATCH = 1000
EVERY_S = 0.2
MOST_QUEUED = 64 * BATCH
"""A disk that is slower than the run makes it wait here: memory is bounded."""

RECEIVED, SENT, HAPPENED = "received", "sent", "happened"
"""Directions: from a worker, to a worker, and what no message told (a death, the start)."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS attempts (
    attempt INTEGER PRIMARY KEY, began REAL NOT NULL, step INTEGER NOT NULL, cause TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, at REAL NOT NULL, direction TEXT NOT NULL,
    worker TEXT NOT NULL, name TEXT NOT NULL, cause INTEGER, payload BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS drops (
    attempt INTEGER NOT NULL, at REAL NOT NULL, item INTEGER NOT NULL, sample INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS restarts (
    attempt INTEGER NOT NULL, at REAL NOT NULL, what TEXT NOT NULL, cause TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS checkpoints (
    step INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, at REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS quarantined (
    sample INTEGER PRIMARY KEY, stage TEXT NOT NULL, cause TEXT NOT NULL, place TEXT NOT NULL,
    traceback TEXT NOT NULL, attempt INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS status (
    one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, data TEXT NOT NULL
) STRICT;
PRAGMA user_version = {VERSION};
"""
"""attempts.began and status.at are seconds since the epoch; every other `at` counts from its
attempt's beginning. messages.cause: the id of the message (or event) that a sent one follows from.
"""

INSERT_MESSAGE = "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Journal:
    """The writing end. Raises CannotWrite, from any method, once the file cannot be written."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._queue: deque[tuple[Any, ...]] = deque()
        self._others: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()  # of the connection, which two threads use
        self._failed: Exception | None = None
        self._told = False  # the failure was raised: it need not be raised again at the end
        self._wake, self._closing = threading.Event(), False
        try:
            self._connection = sqlite3.connect(file, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(SCHEMA)
            (self._last,) = self._connection.execute(
                "SELECT coalesce(max(id), 0) FROM messages"
            ).fetchone()
            (self._attempt,) = self._connection.execute(
                "SELECT coalesce(max(attempt), 0) FROM attempts"
            ).fetchone()
        except sqlite3.Error as error:
            raise CannotWrite(file, error) from error
        self._writer = threading.Thread(target=self._write_on, name="journal", daemon=True)
        self._writer.start()

    @property
    def failed(self) -> bool:
        """Whether the file could not be written: nothing more is taken."""
        return self._failed is not None

    def attempt(self, step: int, cause: str) -> int:
        """Another attempt begins, at this step; cause: what ended the one before, or empty.

        The checkpoint that it goes on from is the newest: it may have become whole just before its
        run was killed, and later ones are damaged.
        """
        self._attempt += 1
        row = (self._attempt, time.time(), step, cause)
        self._put("INSERT INTO attempts VALUES (?, ?, ?, ?)", *row)
        self._put("DELETE FROM checkpoints WHERE step > ?", step)
        if step:
            at = (step, self._attempt, 0.0)
            self._put("INSERT OR IGNORE INTO checkpoints VALUES (?, ?, ?)", *at)
        self.flush()
        return int(self._attempt)

    def message(
        self, at: float, direction: str, worker: str, name: str, payload: bytes, cause: int | None
    ) -> int:
        """A message as it went over the wire; its id. at: seconds since the attempt's start."""
        if self._failed is not None:
            self._tell(self._failed)
        self._last += 1
        queue = self._queue
        queue.append((self._last, self._attempt, at, direction, worker, name, cause, payload))
        waiting = len(queue)
        if waiting >= BATCH:
            self._wake.set()
            if waiting >= MOST_QUEUED:
                self.flush()
        return int(self._last)

    def drop(self, at: float, item: int, sample: int, reason: str) -> None:
        """A sample left the run on purpose. item: the work that dropped it, in this attempt."""
        self._put(
            "INSERT INTO drops VALUES (?, ?, ?, ?, ?)", self._attempt, at, item, sample, reason
        )

    def restart(self, at: float, what: str, cause: str) -> None:
        """Something was started anew. what: a worker's name, or `run` for a roll-back of all."""
        self._put("INSERT INTO restarts VALUES (?, ?, ?, ?)", self._attempt, at, what, cause)

    def checkpoint(self, at: float, step: int) -> None:
        """The checkpoint after `step` steps is whole; the journal up to here is put on disk."""
        self._put("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?)", step, self._attempt, at)
        self.flush()

    def quarantine(self, sample: int, stage: str, cause: str, place: str, traceback: str) -> None:
        """A sample is put aside for good; on disk when this returns. place: `file:line`."""
        row = (sample, stage, cause, place, traceback, self._attempt)
        self._put("INSERT OR IGNORE INTO quarantined VALUES (?, ?, ?, ?, ?, ?)", *row)
        self.flush()

    def quarantined(self) -> list[int]:
        """Samples that were put aside, in their order."""
        with self._lock:
            rows = self._connection.execute("SELECT sample FROM quarantined ORDER BY sample")
            return [int(sample) for (sample,) in rows]

    def status(self, data: str) -> None:
        """What everybody waits for now, JSON; replaces what was there."""
        self._put("INSERT OR REPLACE INTO status VALUES (1, ?, ?)", time.time(), data)

    def flush(self) -> None:
        """All that was handed over is committed when this returns."""
        self._write()
        if self._failed is not None:
            self._tell(self._failed)

    def close(self) -> None:
        """Commits what is left, and leaves one plain file that a read-only folder may hold."""
        self._closing = True
        self._wake.set()
        self._writer.join()
        try:
            if not self._told:
                self.flush()
        finally:
            with self._lock:
                with suppress(sqlite3.OperationalError):  # a reader keeps its WAL a while longer
                    self._connection.execute("PRAGMA busy_timeout = 100")
                    self._connection.execute("PRAGMA journal_mode = DELETE")
                self._connection.close()

    def _put(self, statement: str, *values: Any) -> None:
        if self._failed is not None:
            self._tell(self._failed)
        self._others.append((statement, values))

    def _tell(self, error: Exception) -> None:
        self._told = True
        raise CannotWrite(self.file, error) from error

    def _write_on(self) -> None:
        while not self._closing and self._failed is None:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            self._write()

    def _write(self) -> None:
        """One transaction of what is queued; a failure is kept for the next call to raise."""
        with self._lock:
            if self._failed is not None or not (self._queue or self._others):
                return
            others = [self._others.popleft() for _ in range(len(self._others))]
            rows = [self._queue.popleft() for _ in range(len(self._queue))]
            try:
                with self._connection:
                    self._connection.executemany(INSERT_MESSAGE, rows)
                    for statement, values in others:
                        self._connection.execute(statement, values)
            except (sqlite3.Error, OSError) as error:
                self._failed = error
