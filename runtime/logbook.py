"""What the shell writes into the journal: each message with its cause, drops, and who waits.

Guarantee: a sent message names the entry that it follows from, so that the journal can be read
backwards from any event to what set it off. Nothing here waits for the disk.
"""

import json
import time
from collections.abc import Callable

from flowgraph.runtime.journal import HAPPENED, RECEIVED, SENT, Journal
from flowgraph.runtime.messages import Done, Message
from flowgraph.runtime.orchestrator.events import Interrupted, Started, WorkerDied
from flowgraph.runtime.orchestrator.state import State
from flowgraph.runtime.orchestrator.wait_report import Signs, WaitReport
from flowgraph.runtime.orchestrator.waits import wait_report

REPORT_EVERY_S = 1.0

MOST_SHARE = 0.02
"""Of the loop's time that goes into reports: those of ten thousand workers come every few seconds.
"""


class Logbook:
    """One attempt's entries. Times are seconds since the attempt's start."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._report: WaitReport | None = None
        self._written = ""
        self._every = REPORT_EVERY_S
        self._reported_at = -REPORT_EVERY_S
        self._epoch = time.time()

    def received(self, now: float, worker: str, message: Message, data: bytes) -> int:
        """The entry's id: the cause of what is sent because of it."""
        if isinstance(message, Done):
            for sample, reason in message.dropped:
                self._journal.drop(now, message.item, sample, reason)
        name = type(message).__name__
        return self._journal.message(now, RECEIVED, worker, name, data, None)

    def sent(self, now: float, worker: str, message: Message, data: bytes, cause: int) -> None:
        self._journal.message(now, SENT, worker, type(message).__name__, data, cause)

    def happened(self, now: float, event: Started | WorkerDied | Interrupted) -> int:
        """What no message told; the entry's id."""
        worker = event.worker if isinstance(event, WorkerDied) else ""
        told = event.how.encode() if isinstance(event, WorkerDied) else b""
        return self._journal.message(now, HAPPENED, worker, type(event).__name__, told, None)

    def waits(self, state: State, now: float, signs: Callable[[], Signs]) -> None:
        """Write who waits for what, at most once a second, and only when it is not what it was."""
        if now - self._reported_at < self._every:
            return
        self._reported_at = now
        began = time.thread_time()
        self._report = wait_report(state, now, signs(), self._report)
        plain = self._report.to_plain(self._epoch)
        text = json.dumps(plain)
        if text != self._written:
            self._written = text
            self._journal.status(text)
        self._every = max(REPORT_EVERY_S, (time.thread_time() - began) / MOST_SHARE)

    def last(self, state: State, now: float, signs: Callable[[], Signs]) -> None:
        """The state in which the attempt ended, however long ago the last one was written."""
        if not self._journal.failed:  # the attempt ends by that, and shall be told so
            self._reported_at = now - self._every
            self.waits(state, now, signs)
