"""The port between the user's coroutines and whoever answers their calls."""

import asyncio

from flowgraph.runtime.engine.interface import Call, Completion


class CallPort:
    """Generate calls on their way out and their completions on the way back.

    Law: every call issued is drained at most once, and its future ends once: by `complete`, by
    `fail`, or by its own cancellation (its episode ended); a completion that nobody waits for any
    more is dropped. Belongs to one loop and one thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next = 0
        self._issued: list[tuple[str, Call]] = []
        self._waiting: dict[int, asyncio.Future[Completion]] = {}

    def number(self) -> int:
        """An id for the next call: unique for this port."""
        self._next += 1
        return self._next

    def generate(self, agent: str, call: Call) -> asyncio.Future[Completion]:
        """Issues a call; whoever drives the loop finds it with `drain`."""
        future: asyncio.Future[Completion] = self._loop.create_future()
        self._waiting[call.id] = future
        self._issued.append((agent, call))
        return future

    def drain(self) -> list[tuple[str, Call]]:
        """Calls issued since the last drain, without those given up meanwhile, in order."""
        issued, self._issued = self._issued, []
        wanted: list[tuple[str, Call]] = []
        for agent, call in issued:
            if self._waiting[call.id].done():
                del self._waiting[call.id]
            else:
                wanted.append((agent, call))
        return wanted

    def complete(self, completion: Completion) -> None:
        """Answers the call of that id. Raises KeyError for one never issued, or answered before."""
        future = self._waiting.pop(completion.id)
        if not future.done():
            future.set_result(completion)

    def fail(self, error: Exception) -> None:
        """Ends all waiting calls with this error; answers that still come are dropped."""
        for _, call in self._issued:
            self._end(self._waiting.pop(call.id), error)
        self._issued = []
        for future in self._waiting.values():
            self._end(future, error)

    def _end(self, future: asyncio.Future[Completion], error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    @property
    def waiting(self) -> int:
        """Calls without an answer, those included that nobody waits for any more."""
        return len(self._waiting)
