"""A while in which the user's threads and coroutines may let go of the records that they look at.

They may be about to, having written them to a disk, say; without them nobody here ever would. So
what ends a run for want of room waits for them, but not for ever.
"""

import threading
import time
from collections.abc import Callable

GRACE_S = 5.0
LOOK_S = 0.05
"""Between two looks whether they have let go."""

OURS = frozenset({"heartbeat", "fetch"})
"""Threads of a worker, begun at any time, that run nothing of the user's beside an item."""


def nobody() -> bool:
    """There are no coroutines."""
    return False


class Grace:
    """coroutines: whether any of the user's are left that are no item's, and get their turn.

    To be made before the user's code is imported: threads that are there already are not its own.
    """

    def __init__(
        self,
        coroutines: Callable[[], bool] = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coroutines = coroutines
        self._clock = clock
        self._before = frozenset(threading.enumerate())
        self._until: float | None = None

    def begin(self) -> bool:
        """From now on, if there is anybody to wait for; whether there is."""
        since = set(threading.enumerate()) - self._before
        if all(thread.name in OURS for thread in since) and not self._coroutines():
            return False
        self._until = self._clock() + GRACE_S
        return True

    def end(self) -> None:
        """Nothing is waited for any more."""
        self._until = None

    @property
    def on(self) -> bool:
        """Whether it has begun and not ended."""
        return self._until is not None

    @property
    def over(self) -> bool:
        """Whether it has begun, and lasted long enough."""
        return self._until is not None and self._clock() >= self._until

    def wake_in(self) -> float | None:
        """Seconds until a look is due though no message comes; None: for ever."""
        return None if self._until is None else LOOK_S
