"""Workers as processes of this machine, forked from one process that has imported torch."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.worker.spec import WorkerSpec

KILL_AFTER_S = 5.0
"""How long workers may take to end by themselves once they were told to."""


@dataclass(frozen=True, slots=True)
class Exit:
    """A worker process ended; how: "exited with status 1", "was killed by signal 9 (SIGKILL)"."""

    worker: str
    how: str
    clean: bool


class LocalLauncher:
    """Starts workers, tells who ended, and leaves nobody behind.

    Use as a context manager: on leaving, every process that is still there is killed and reaped.
    """

    def __init__(self) -> None:
        environment = dict(os.environ)
        environment["PYTHONSAFEPATH"] = "1"  # a folder `kernels/` must not shadow a package
        environment["OMP_NUM_THREADS"] = "1"
        environment.setdefault("TORCH_DISABLE_ADDR2LINE", "1")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "flowgraph.runtime.launch.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._in, self._out = self._zygote.stdin, self._zygote.stdout
        os.set_blocking(self._out.fileno(), False)
        self._buffer = b""
        self.pids: dict[str, int] = {}
        self._alive: set[str] = set()

    @property
    def zygote_pid(self) -> int:
        return self._zygote.pid

    def fileno(self) -> int:
        """Readable when `poll` has something to tell."""
        return self._out.fileno()

    def start(self, specs: Sequence[WorkerSpec]) -> None:
        """Ask for the processes; `poll` tells when they run or have ended."""
        for spec in specs:
            self._alive.add(spec.name)
            self._in.write(json.dumps(spec.to_plain()).encode() + b"\n")
        self._in.flush()

    def poll(self) -> list[Exit]:
        """Processes that ended since the last call. Raises RunFailed when the zygote is gone."""
        exits: list[Exit] = []
        try:
            while data := os.read(self._out.fileno(), 1 << 16):
                self._buffer += data
            if self._alive:
                status = self._zygote.wait()
                raise RunFailed(
                    f"the process that starts workers {_sentence(status)}",
                    hint="look above for its error; is memory short?",
                )
        except BlockingIOError:
            pass
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "started" in told:
                self.pids[told["started"]] = told["pid"]
            elif "ended" in told:
                self._alive.discard(told["ended"])
                code = os.waitstatus_to_exitcode(told["status"])
                exits.append(Exit(told["ended"], _sentence(code), clean=code == 0))
        return exits

    def __enter__(self) -> "LocalLauncher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, grace_s: float = 0.0) -> None:
        """End everything: workers get `grace_s` seconds to end by themselves, then are killed."""
        until = time.monotonic() + grace_s
        while self._alive and time.monotonic() < until:
            try:
                self.poll()
            except RunFailed:
                break
            if self._alive:
                _readable(self._out.fileno(), until - time.monotonic())
        if not self._in.closed:
            self._in.close()  # the zygote kills and reaps what is left
        try:
            self._zygote.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self._zygote.send_signal(signal.SIGKILL)  # and the kernel its children
            self._zygote.wait()
        self._out.close()


def _readable(fd: int, timeout_s: float) -> None:
    select.select([fd], [], [], max(0.0, timeout_s))


def _sentence(code: int) -> str:
    if code < 0:
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"exited with status {code}"
