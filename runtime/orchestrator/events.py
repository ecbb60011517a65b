"""What happens to the orchestrator beside messages, and what it asks of its shell."""

import enum
from dataclasses import dataclass

from flowgraph.runtime.light import light
from flowgraph.runtime.messages import Message
from flowgraph.runtime.progress import Progress, RunResult


@dataclass(frozen=True, slots=True)
class Started:
    """All processes were asked to start; `now` is the run's beginning."""


class Death(enum.Enum):
    """Whose doing a process's end was, as far as it tells."""

    CRASHED = "crashed"  # its own: a fault in C code, an exit
    KILLED = "killed"  # by the kernel that needs memory, by somebody, by us for its silence
    ORPHANED = "orphaned"  # it says itself that another process failed it


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied:
    """A process ended without `Stopped`. how: a sentence's end, "was killed by signal 9".

    trace, at: the Python lines that it wrote down when it crashed, and the user's among them.
    """

    worker: str
    how: str
    log: str
    incarnation: int = 0
    death: Death = Death.KILLED
    trace: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user asked the run to end (Ctrl-C)."""


Event = Message | Started | WorkerDied | Interrupted


@light
@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Hand the message to the worker."""

    worker: str
    message: Message


@dataclass(frozen=True, slots=True)
class Tell:
    """Hand the progress to whoever watches."""

    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """All modules have saved: the checkpoint after `step` steps is whole with this data."""

    step: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ended well."""

    result: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The run cannot go on: end all workers and raise RunFailed with this text.

    training: the sample's failed work was a training step's: without it the run could go on.
    lost: processes were lost, the work itself is not at fault: new ones may go on.
    """

    what: str
    hint: str = ""
    at: str = ""
    traceback: str = ""
    stage: str = ""
    cause: str = ""
    sample: int | None = None
    training: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Start a new process for the worker, whose process is gone."""

    worker: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class CloseSegment:
    """Nobody will read the memory of this lost process any more."""

    worker: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Count what a worker said at a wrong time; the run goes on. reason: of a few fixed words."""

    reason: str
    what: str


Action = Send | Tell | Commit | Finish | Abort | Start | CloseSegment | Refuse
