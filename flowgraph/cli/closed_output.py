"""`flowgraph run | head`: whoever reads our output may go; the run goes on without it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def surviving_closed_output() -> Iterator[None]:
    """A reader that is gone ends the printing inside, and nothing else: later output goes nowhere.

    Wrap only what prints: another broken pipe is another matter.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit):  # rich answers a broken pipe with sys.exit
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            if _is_closed(stream.fileno()):
                os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _is_closed(descriptor: int) -> bool:
    """Whether nobody reads it any more."""
    import select

    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
