"""Workers as processes of this machine, forked from one process that has imported torch."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowgraph.ir.errors import RunFailed
from flowgraph.runtime.launch.endings import death_of, sentence
from flowgraph.runtime.orchestrator.events import Death
from flowgraph.runtime.transport.porter import PorterSpec
from flowgraph.runtime.worker.spec import WorkerSpec

SERVE_S = 60.0
"""How long porters may take to listen; until then torch is imported."""

KILL_AFTER_S = 5.0
"""How long workers may take to end by themselves once they were told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """A worker process ended; how: "exited with status 1", "was killed by signal 9 (SIGKILL)"."""

    worker: str
    incarnation: int
    how: str
    death: Death


class LocalLauncher:
    """Starts workers, tells who ended, and leaves nobody behind.

    Use as a context manager: on leaving, every process that is still there is killed and reaped.
    Between two attempts at a run `clear` ends all workers, and the process that has imported torch
    stays.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        environment = dict(os.environ)
        environment["PYTHONSAFEPATH"] = "1"  # a folder `kernels/` must not shadow a package
        environment["OMP_NUM_THREADS"] = "1"
        environment.setdefault("TORCH_DISABLE_ADDR2LINE", "1")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "flowgraph.runtime.launch.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._in, self._out = self._zygote.stdin, self._zygote.stdout
        os.set_blocking(self._out.fileno(), False)
        self._buffer = b""
        self.pids: dict[str, int] = {}
        self.porters: dict[str, str] = {}  # endpoints, by name
        self._alive: set[str] = set()
        self._clearing = False

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
            self.pids.pop(spec.name, None)  # of its lost process, if it had one
            self._ask({"start": spec.to_plain()})

    def serve(self, specs: Sequence[PorterSpec]) -> Mapping[str, str]:
        """Start porters and wait for their endpoints, by name; they are replaced when they end.

        Raises RunFailed when one cannot listen, or does not answer in `SERVE_S`.
        """
        for spec in specs:
            self._ask({"serve": spec.to_plain()})
        until = time.monotonic() + SERVE_S
        while any(spec.name not in self.porters for spec in specs):
            left = until - time.monotonic()
            if self._zygote.poll() is not None:
                raise self._zygote_lost()
            if left <= 0:
                raise RunFailed(f"no word from {', '.join(spec.name for spec in specs)}")
            _readable(self._out.fileno(), left)
            self.poll()
        return self.porters

    def close_segment(self, worker: str, incarnation: int) -> None:
        """Let go of a lost process's memory; who has mapped it keeps it."""
        self._ask({"close": [worker, incarnation]})

    def clear(self) -> None:
        """Kill and forget everybody, with what they had in memory.

        A process that starts workers and does not do it, or is gone, is replaced.
        """
        self._clearing = True
        until = time.monotonic() + KILL_AFTER_S
        try:
            self._ask({"clear": True})
            while self._clearing:
                left = until - time.monotonic()
                if self._zygote.poll() is not None:
                    raise self._zygote_lost()
                if left <= 0:
                    raise RunFailed("the process that starts workers hangs")
                _readable(self._out.fileno(), left)
                self.poll()
        except RunFailed:
            self._end()
            self._begin()

    def _ask(self, order: Mapping[str, object]) -> None:
        try:
            self._in.write(json.dumps(order).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._zygote_lost() from error

    def _zygote_lost(self) -> RunFailed:
        status = self._zygote.wait()
        return RunFailed(
            f"the process that starts workers {sentence(status)}",
            hint="look above for its error; is memory short?",
        )

    def poll(self) -> list[Exit]:
        """Processes that ended since the last call. Raises RunFailed when the zygote is gone."""
        exits: list[Exit] = []
        try:
            while data := os.read(self._out.fileno(), 1 << 16):
                self._buffer += data
            if self._alive:
                raise self._zygote_lost()
        except BlockingIOError:
            pass
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "started" in told:
                self.pids[told["started"]] = told["pid"]
            elif "serving" in told:
                if "error" in told:
                    raise RunFailed(f"{told['serving']} cannot serve: {told['error']}")
                self.pids[told["serving"]] = told["pid"]
                self.porters[told["serving"]] = told["endpoint"]
            elif "ended" in told:
                self._alive.discard(told["ended"])
                code = os.waitstatus_to_exitcode(told["status"])
                ended = Exit(
                    worker=told["ended"],
                    incarnation=told["incarnation"],
                    how=sentence(code),
                    death=death_of(code),
                )
                exits.append(ended)
            elif "cleared" in told:
                self.pids, self.porters, self._alive = {}, {}, set()
                self._clearing = False
        return exits

    def __enter__(self) -> "LocalLauncher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, grace_s: float = 0.0) -> None:
        """End everything: workers get `grace_s` seconds to end by themselves, then are killed."""
        self._let_end(grace_s)
        self._end()

    def _let_end(self, grace_s: float) -> None:
        until = time.monotonic() + grace_s
        while self._alive and time.monotonic() < until:
            try:
                self.poll()
            except RunFailed:
                break
            if self._alive:
                _readable(self._out.fileno(), until - time.monotonic())

    def _end(self) -> None:
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
