"""`python -m tests.runtime.killed_commit TEMPLATE INTO`: a commit killed at each of its moments.

For each moment TEMPLATE, a folder of checkpoints, is copied to `INTO/<number>`, and a process that
commits `step-00000003` there is killed: before each operation on files, then with ever more bytes
of a file written. Prints how many were killed; the last folder is of a commit that nobody disturbs.
"""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from flowgraph.runtime.checkpoint import commit

OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.mkdir")
"""Names by which the interpreter tells of them, before they are done."""

STATE = b"the orchestrator " * 8


def die_before(operation: int) -> None:
    """This process is killed -9 just before its n-th operation on a file from now on, from 0."""
    seen = 0

    def watch(event: str, _arguments: object) -> None:
        nonlocal seen
        if event in OPERATIONS:
            if seen == operation:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    sys.addaudithook(watch)


def die_amid(size: int) -> None:
    """This process is killed by the kernel when a file that it writes would exceed `size` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def killed(template: Path, folder: Path, doom: Callable[[], None]) -> bool:
    """Whether the doom came before the commit's end."""
    shutil.copytree(template, folder)
    pid = os.fork()
    if pid == 0:
        doom()
        commit(folder / "step-00000003", STATE)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) != 0


def main(template: Path, into: Path) -> int:
    """How many were killed."""
    moments = 0
    for size in range(0, 500, 7):
        if not killed(template, into / f"{moments}", partial(die_amid, size)):
            break
        moments += 1
    for operation in count():
        folder = into / f"{moments}"
        shutil.rmtree(folder, ignore_errors=True)
        if not killed(template, folder, partial(die_before, operation)):
            return moments
        moments += 1
    raise AssertionError("never")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
