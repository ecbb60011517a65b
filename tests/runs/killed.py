"""`python -m tests.runs.killed MOMENT ...`: `flowgraph ...`, ended at one exact moment.

MOMENT: `event:N`, right after the orchestrator took its N-th event (from 1) and did what follows;
`step:N:SIGNAL`, when the checkpoint after N steps is whole; `commit:N:K`, before the K-th operation
on files (from 0) of the N-th commit. The second sends all processes the signal; in the others the
orchestrator is killed with -9: alone in a commit and after even events, after odd ones with all.
"""

import os
import signal
import sys

from flowgraph.cli.main import main
from flowgraph.runtime import supervise
from flowgraph.runtime.orchestrator.events import Action, Commit, Event
from flowgraph.runtime.shell import Shell
from tests.runtime.killed_commit import die_before


def after_event(number: int) -> type[Shell]:
    taken = 0

    class Killed(Shell):
        def _feed(self, event: Event, entry: int = 0) -> None:
            nonlocal taken
            super()._feed(event, entry)
            taken += 1
            if taken == number:
                os.kill(0 if number % 2 else os.getpid(), signal.SIGKILL)

    return Killed


def after_step(number: int, how: str) -> type[Shell]:
    class Stopped(Shell):
        def _act(self, action: Action, cause: int) -> None:
            super()._act(action, cause)
            if isinstance(action, Commit) and action.step == number:
                os.kill(0, signal.Signals[how])

    return Stopped


def amid_commit(number: int, operation: int) -> type[Shell]:
    commits = 0

    class Killed(Shell):
        def _act(self, action: Action, cause: int) -> None:
            nonlocal commits
            if isinstance(action, Commit):
                commits += 1
                if commits == number:
                    self._directory.journal.flush()
                    die_before(operation)
            super()._act(action, cause)

    return Killed


def dying_at(moment: str) -> type[Shell]:
    """The shell of a run that ends at the moment."""
    match moment.split(":"):
        case ["event", number]:
            return after_event(int(number))
        case ["step", number, how]:
            return after_step(int(number), how)
        case ["commit", number, operation]:
            return amid_commit(int(number), int(operation))
        case _:
            raise ValueError(f"no such moment: {moment}")


if __name__ == "__main__":
    supervise.Shell = dying_at(sys.argv[1])  # type: ignore[attr-defined]
    sys.exit(main(sys.argv[2:]))
