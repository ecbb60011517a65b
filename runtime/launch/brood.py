"""What the zygote has forked, and the memory that it keeps for them.

It makes the memory of each worker's segment, on disk too where the run may spill, and keeps it, so
that what a worker has written can be read when the worker is lost; it never touches it.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch._dynamo  # noqa: F401  a rank's optimizer would, 1.7 s of it: once here, for all ranks

from flowgraph.runtime.pool import new_memory, new_spill
from flowgraph.runtime.transport.porter import PorterSpec, serve_node
from flowgraph.runtime.worker.entry import main as work
from flowgraph.runtime.worker.entry import redirect
from flowgraph.runtime.worker.spec import UNREACHABLE, WorkerSpec

PR_SET_PDEATHSIG = 1

Process = tuple[str, int]
"""A worker's name and incarnation."""


class Brood:
    """The processes forked here, and the memory that is kept for them.

    A porter that ended is replaced at once, at its address: readers go on where they were.
    """

    def __init__(self) -> None:
        self._workers: dict[int, Process] = {}
        self._porters: dict[int, PorterSpec] = {}
        self._segments: dict[Process, list[int]] = {}  # descriptors of memory, by whose it is

    def obey(self, order: Mapping[str, Any]) -> None:
        """One line of input."""
        if "start" in order:
            self._start(WorkerSpec.from_plain(order["start"]))
        elif "serve" in order:
            self._serve(PorterSpec.from_plain(order["serve"]))
        elif "clear" in order:
            self._clear()
        else:
            name, incarnation = order["close"]
            for fd in self._segments.pop((name, incarnation)):
                os.close(fd)

    def reap(self) -> None:
        """Tell of all that ended."""
        while self._workers or self._porters:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self._workers:
                name, incarnation = self._workers.pop(pid)
                tell({"ended": name, "incarnation": incarnation, "status": status})
                if os.waitstatus_to_exitcode(status) == UNREACHABLE:
                    self._end_porters()
            elif pid in self._porters:
                self._serve(self._porters.pop(pid))

    def _end_porters(self) -> None:
        """One of them hangs: which, nobody can say. Others' fetches go on with their successors."""
        for pid in self._porters:
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """End and reap everybody."""
        pids = [*self._workers, *self._porters]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)

    def _clear(self) -> None:
        """Nobody is left, nor what they had written; then new ones may come."""
        self.kill()
        for fd in [fd for own in self._segments.values() for fd in own]:
            os.close(fd)
        for held in (self._workers, self._porters, self._segments):
            held.clear()
        tell({"cleared": True})

    def _start(self, spec: WorkerSpec) -> None:
        memory = [new_memory(spec.token, spec.pool_bytes)]
        if spec.spill_bytes:
            memory.append(new_spill(spec.spill_dir, spec.spill_bytes))
            spec = replace(spec, spill_fd=memory[1])
        self._segments[(spec.name, spec.incarnation)] = memory
        spec = replace(spec, pool_fd=memory[0], pool_pid=os.getpid())
        pid = os.fork()
        if pid == 0:
            self._become(spec.name, keep=memory)
            os._exit(work(spec))
        self._workers[pid] = (spec.name, spec.incarnation)
        tell({"started": spec.name, "pid": pid})

    def _serve(self, spec: PorterSpec) -> None:
        read, write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self._become(spec.name, keep=())
            _port(spec, write)
        os.close(write)
        told = json.loads(os.read(read, 1 << 16) or b'{"error": "it was lost"}')
        os.close(read)
        if "endpoint" in told:
            self._porters[pid] = replace(spec, listen=told["endpoint"])
        tell({"serving": spec.name, "pid": pid, **told})

    def _become(self, name: str, keep: Collection[int]) -> None:
        Path("/proc/self/comm").write_text(name[:15])  # what `ps` and `top` call it
        others = [fd for own in self._segments.values() for fd in own if fd not in keep]
        _become_worker(others)


def _port(spec: PorterSpec, told: int) -> NoReturn:
    """Be the node's porter until killed; what goes wrong is in its log."""
    redirect(spec.log)
    try:
        serve_node(spec, told)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _become_worker(others: Iterable[int]) -> None:
    """Undo what is the zygote's own, and die with it. others: memory that is not this worker's."""
    for fd in others:
        os.close(fd)
    parent = os.getppid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def tell(what: dict[str, object]) -> None:
    """One line to whoever started us; when nobody reads any more, the input's end will tell us."""
    try:
        os.write(1, json.dumps(what).encode() + b"\n")
    except BrokenPipeError:
        return
