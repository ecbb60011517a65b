"""The process that workers are forked from: it imports torch once, so that a worker starts in
milliseconds, and it outlives none of them.

Speaks JSON lines. In: a worker's spec, fork it. Out: `{"started": name, "pid": ...}`, and
`{"ended": name, "status": wait status}`. When its input ends (its parent is gone, however it died),
it kills all workers; when it is killed itself, the kernel kills them (`PR_SET_PDEATHSIG`).
Guarantee: no worker outlives the process that started the run.
"""

import ctypes
import json
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until input ends and all workers have ended."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the orchestrator's to handle, not ours
        signal.signal(number, signal.SIG_IGN)
    wake, _ = _wake_on_child()
    from flowgraph.runtime.worker.entry import main as work
    from flowgraph.runtime.worker.spec import WorkerSpec

    _tell({"ready": os.getpid()})
    children: dict[int, str] = {}
    buffer = b""
    while True:
        readable, _, _ = select.select([0, wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(children)
        if 0 not in readable:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            _kill(children)
            return 0
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            spec = WorkerSpec.from_plain(json.loads(line))
            pid = os.fork()
            if pid == 0:
                _become_worker()
                os._exit(work(spec))
            children[pid] = spec.name
            _tell({"started": spec.name, "pid": pid})


def _wake_on_child() -> tuple[int, int]:
    """A descriptor that is readable after a child's end."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read, write


def _become_worker() -> None:
    """Undo what is the zygote's own, and die with it."""
    parent = os.getppid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _reap(children: dict[int, str]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        name = children.pop(pid, None)
        if name is not None:
            _tell({"ended": name, "status": status})


def _kill(children: dict[int, str]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


def _tell(what: dict[str, object]) -> None:
    """One line to whoever started us; when nobody reads any more, the input's end will tell us."""
    try:
        os.write(1, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return


if __name__ == "__main__":
    sys.exit(main())
