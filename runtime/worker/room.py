"""What a worker and the orchestrator say to each other about room in pools."""

import math
from collections.abc import Callable

from flowgraph.runtime.messages import BlockName, Free, Full, Message, Recall, Released, Stop
from flowgraph.runtime.worker.grace import Grace
from flowgraph.runtime.worker.link import Line
from flowgraph.runtime.worker.output import Store


class RunOver(Exception):
    """The run ended while a block waited for room: nobody wants it any more."""


class Room:
    """One worker's part: it waits for room, and lets go of what nothing looks at any more."""

    def __init__(self, worker: str, link: Line, store: Store, grace: Grace | None = None) -> None:
        """grace: for others here who may let go; there are no coroutines without one."""
        self._worker = worker
        self._link = link
        self._store = store
        self._grace = grace or Grace()  # on while `Recall` has no answer yet

    def wait(self, stream: str, nbytes: int, put_off: Callable[[list[Message]], None]) -> None:
        """Until something was freed. All other messages are put off, in their order, but `Recall`:
        what this worker holds may be what it waits for.

        put_off: called with them, possibly none, whenever the link was looked at. Raises RunOver
        when the run ends first: after its last step nobody makes room.
        """
        freed = self._store.freed
        full = Full(worker=self._worker, stream=stream, nbytes=nbytes, freed=freed)
        self._link.send(full)
        while self._store.freed == freed:
            others: list[Message] = []
            wake = self.wake_in()
            for message in self._link.receive(-1 if wake is None else math.ceil(wake * 1000.0)):
                match message:
                    case Free():
                        self._store.free(message)
                    case Recall():
                        self.recall()
                    case Stop():
                        raise RunOver
                    case _:
                        others.append(message)
            put_off(others)
            if self._grace.on:
                self.look()

    def look(self) -> None:
        """Tell of what was let go since the last look: cheap, and nothing where nothing is held."""
        if not self._store.leases.holds:
            return
        gone = self._store.leases.gone()
        if self._grace.on and (gone or self._grace.over):
            self._answer(gone or self._store.leases.recalled())
        elif gone:
            self._link.send(Released(worker=self._worker, blocks=gone, asked=False))

    def recall(self) -> None:
        """Answer `Recall`: at once, or after a while in which others here may let go."""
        gone = self._store.leases.recalled()
        if gone or not self._store.leases.holds or not self._grace.begin():
            self._answer(gone)

    def wake_in(self) -> float | None:
        """Seconds until the next `look` is due though no message comes; None: for ever."""
        return self._grace.wake_in()

    def _answer(self, gone: tuple[BlockName, ...]) -> None:
        self._grace.end()
        self._link.send(Released(worker=self._worker, blocks=gone, asked=True))
