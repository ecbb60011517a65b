"""A thread that fetches blocks while its owner computes.

Guarantees: `start` and `ended` never wait; what was started ends as `client.BlockClient` says,
however long its owner's turns are; an error of the thread itself is raised by its owner's next
`ended`, so that nobody waits for a thread that is gone.
Assumes: one owner. Sockets are the thread's alone; a block's memory is the thread's to write until
its end was told, and its owner keeps it until then.
"""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeVar

from flowgraph.runtime.transport.client import PATIENT, BlockClient, Finished, Source
from flowgraph.runtime.transport.keys import Keyring
from flowgraph.runtime.transport.receiving import Limits

Item = TypeVar("Item")

IDLE_MS = 60_000
"""Between two looks of a thread that has nothing to do: it is woken when it has."""


@dataclass(frozen=True, slots=True)
class _Order:
    number: int
    source: Source
    into: memoryview


class Fetcher:
    """Numbers fetches as its owner starts them; their ends come in any order."""

    def __init__(self, keyring: Keyring, limits: Limits = PATIENT) -> None:
        self._keyring = keyring
        self._limits = limits
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        self._ends: SimpleQueue[Finished | BaseException] = SimpleQueue()
        self._ordered = _Bell()
        self._ended = _Bell()
        self._thread: threading.Thread | None = None
        self._next = 0

    def fileno(self) -> int:
        """Readable when `ended` has something to tell."""
        return self._ended.fd

    def start(self, source: Source, into: memoryview) -> int:
        """Fetch the block into writable memory of its size; the fetch's number, for `ended`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="fetch", daemon=True)
            self._thread.start()
        number, self._next = self._next, self._next + 1
        self._orders.put(_Order(number, source, into))
        self._ordered.ring()
        return number

    def ended(self) -> list[Finished]:
        """The fetches that have ended since the last call; never waits."""
        self._ended.hush()
        found = []
        for end in _taken(self._ends):
            if isinstance(end, BaseException):
                raise end
            found.append(end)
        return found

    def close(self) -> None:
        """Gives up what is not done; the servers are told."""
        if self._thread is not None:
            self._orders.put(None)
            self._ordered.ring()
            self._thread.join()
            self._thread = None
        for bell in (self._ordered, self._ended):
            bell.close()

    def _serve(self) -> None:
        try:
            client = BlockClient(self._keyring, limits=self._limits)
            client.also_wake_on(self._ordered.fd)
            numbers: dict[int, int] = {}  # ours, by the client's
            while self._take(client, numbers):
                for end in client.turn(IDLE_MS):
                    self._tell(Finished(numbers.pop(end.fetch), end.error))
            client.close()
        except BaseException as error:
            self._tell(error)

    def _take(self, client: BlockClient, numbers: dict[int, int]) -> bool:
        """Start what was ordered. False: it was the last."""
        self._ordered.hush()
        for order in _taken(self._orders):
            if order is None:
                return False
            numbers[client.start(order.source, order.into)] = order.number
        return True

    def _tell(self, end: Finished | BaseException) -> None:
        self._ends.put(end)
        self._ended.ring()


class _Bell:
    """Wakes the other thread, which polls `fd` beside its sockets."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self.fd, 1)

    def hush(self) -> None:
        """Before looking at what it rang for: what comes meanwhile rings anew."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self.fd)


def _taken(queue: SimpleQueue[Item]) -> Iterator[Item]:
    """All that is there now."""
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
