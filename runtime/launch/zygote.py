"""The process that workers are forked from: it imports torch once, so that a worker starts in
milliseconds, and it outlives none of them.

Speaks JSON lines. In: `{"start": spec}`, fork a worker; `{"close": [name, incarnation]}`, let go of
a lost worker's memory; `{"serve": spec}`, fork a node's porter; `{"clear": true}`, kill and forget
all of them. Out: `{"started": name, "pid": ...}`; `{"ended": name, "incarnation": number, "status":
wait status}`; `{"serving": name, "pid": ..., "endpoint": ...}`, or its `"error"`; `{"cleared":
true}`. When its input ends (its parent is gone, however it died),
it kills all of them; when it is killed itself, the kernel kills them (`PR_SET_PDEATHSIG`).
Guarantee: no worker outlives the process that started the run.
"""

import json
import os
import select
import signal
import sys


def main() -> int:
    """Serve until input ends and all workers have ended."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the orchestrator's to handle, not ours
        signal.signal(number, signal.SIG_IGN)
    wake, _ = _wake_on_child()
    from flowgraph.runtime.launch.brood import Brood, tell  # torch: long enough for a Ctrl-C

    brood = Brood()
    tell({"ready": os.getpid()})
    buffer = b""
    while True:
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            brood.reap()
        if 0 not in readable:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            brood.kill()
            return 0
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            brood.obey(json.loads(line))


def _wake_on_child() -> tuple[int, int]:
    """A descriptor that is readable after a child's end."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


if __name__ == "__main__":
    sys.exit(main())
