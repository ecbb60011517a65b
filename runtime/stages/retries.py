"""Work in which the user's code raised is tried again: a service may have been away for a moment.

Randomness is keyed by identity, so an attempt that succeeds gives what the first would have given.
"""

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowgraph.runtime.failures import StageFailed

T = TypeVar("T")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0
"""Before the first retry, and the most before a later one: each pause is twice the one before."""


async def tried(work: Callable[[], Awaitable[T]], retries: int) -> T:
    """What the work gives, tried up to `1 + retries` times.

    Raises the StageFailed of the last attempt; those before it go to standard error, from the
    user's frame on.
    """
    for retry in range(retries):
        try:
            return await work()
        except StageFailed as error:
            pause_s = min(FIRST_PAUSE_S * 2**retry, LONGEST_PAUSE_S)
            trace = error.trace or "".join(traceback.format_exception(error))
            told = (
                f"{trace.rstrip()}\n{error.what}; retry {retry + 1} of {retries} in {pause_s:g} s"
            )
            print(told, file=sys.stderr, flush=True)
        await asyncio.sleep(pause_s)
    return await work()
