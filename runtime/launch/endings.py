"""What the exit status of a worker's process says: in words, and whose doing it was."""

import signal

from flowgraph.runtime.orchestrator.events import Death
from flowgraph.runtime.worker.spec import ORPHANED, UNREACHABLE

FAULTS = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
"""Signals that a process brings on itself. SIGKILL is also what the kernel sends for memory."""


def sentence(code: int) -> str:
    """A sentence's end. code: exit status, or minus the signal."""
    if code < 0:
        return f"was killed by signal {-code} ({_name(-code)})"
    if code == UNREACHABLE:
        return f"could not read a block of another node (exit status {code})"
    if code == ORPHANED:
        return "ended, since a process is gone whose records it was to read"
    return f"exited with status {code}"


def death_of(code: int) -> Death:
    """Whose doing it was. code: as in `sentence`."""
    if code in (UNREACHABLE, ORPHANED):
        return Death.ORPHANED
    return Death.CRASHED if code >= 0 or -code in FAULTS else Death.KILLED


def _name(number: int) -> str:
    """Real-time signals have none of their own."""
    known = [known.name for known in signal.Signals if known == number]
    return known[0] if known else f"SIGRTMIN+{number - signal.SIGRTMIN}"
