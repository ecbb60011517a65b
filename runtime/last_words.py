"""What a process wrote into its log while it crashed: the Python lines, and the user's among them.

Every worker has `faulthandler` on. A process that is killed from outside leaves nothing.
"""

import os
import re
from collections.abc import Mapping

from flowgraph.runtime.stages.faults import users_line

FATAL = "Fatal Python error: "
MOST_BYTES = 1 << 16
"""Of a log that are looked through; threads are many, and a crash is its log's end."""

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in ', re.MULTILINE)


class LastWords:
    """Of each worker's present process. logs: file by worker; those before it are not its own."""

    def __init__(self, logs: Mapping[str, str]) -> None:
        self._logs = logs
        self._ends = {worker: _size(log) for worker, log in logs.items()}

    def of(self, worker: str) -> tuple[str, str]:
        """The traceback, and `file:line` of the user's code in it; empty when there is none.

        Its process is gone: the next call is about the next one.
        """
        log = self._logs[worker]
        begin, end = self._ends[worker], _size(log)
        self._ends[worker] = end
        if end <= begin:
            return "", ""
        with open(log, "rb") as file:
            file.seek(max(begin, end - MOST_BYTES))
            text = file.read().decode(errors="replace")
        at = text.rfind(FATAL)
        if at < 0:
            return "", ""
        trace = text[at:].split("\nExtension modules:")[0].rstrip() + "\n"
        return trace, _place(trace)


def _size(log: str) -> int:
    try:
        return os.stat(log).st_size
    except FileNotFoundError:  # its process has not begun yet
        return 0


def _place(trace: str) -> str:
    """In the thread that crashed, or in the only one that there is."""
    own = trace.split("Current thread", 1)[-1].split("\n\n")[0]
    at = users_line([(file, int(line)) for file, line in _FRAME.findall(own)])
    return "" if at is None else str(at)
