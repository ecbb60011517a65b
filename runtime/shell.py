"""Runs a plan on this machine: processes, sockets and clocks around the orchestrator's core.

Guarantees: whatever way it is left (end, failure, Ctrl-C, an exception of ours), no process, socket
or shared memory of the run is left; a worker's death is noticed at once, by the kernel's word.
"""

import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import zmq

from flowgraph.ir.errors import RunFailed
from flowgraph.ir.location import Location
from flowgraph.ir.plan import Plan
from flowgraph.runtime.launch.local import Exit, LocalLauncher
from flowgraph.runtime.messages import Failed, Ready, decode, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.core import step
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    Event,
    Finish,
    Interrupted,
    Send,
    Started,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.state import RunPhase, State, new_state
from flowgraph.runtime.progress import Observer, Progress, RunResult, WorkerStarted
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.worker.link import make_socket
from flowgraph.runtime.worker.spec import WorkerSpec

STARTUP_S = 300.0
"""Seconds until all workers must be ready: the largest models load within it."""

STOP_S = 5.0
"""Seconds that workers get to end by themselves after the run's last message."""

PEER_S = 2.0
"""Seconds in which the end of a lost rank must be seen, before its survivor's error is told."""

POLL_MS = 1000


class RunAborted(RunFailed):
    """The run ended early. `trace`: the worker's traceback; `stage`, `sample`: where, if known."""

    def __init__(self, abort: Abort) -> None:
        at = None
        if abort.at:
            file, _, line = abort.at.rpartition(":")
            at = Location(file, int(line)) if line.isdigit() else None
        super().__init__(abort.what, at=at, hint=abort.hint or None)
        self.trace = abort.traceback
        self.stage = abort.stage
        self.sample = abort.sample


class RunInterrupted(RunFailed):
    """The user ended the run (Ctrl-C or SIGTERM)."""


def run_plan(plan: Plan, options: RunOptions, observe: Observer) -> RunResult:
    """Run the plan's processes to the end.

    Raises RunAborted, RunInterrupted, or ConfigurationError for a run directory that exists.
    """
    directory = RunDirectory(Path(options.run_dir), plan)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="flowgraph-") as scratch,
            LocalLauncher() as started,
        ):
            result = _Shell(plan, options, observe, directory, scratch, started).run()
    except RunInterrupted:
        directory.outcome("interrupted")
        raise
    except BaseException as error:
        directory.outcome("failed", error=str(error))
        raise
    finally:
        directory.close()
    return result


@contextmanager
def _interruptible(stop: list[bool]) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop[0]` instead of raising in the middle of something."""

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop[0] = True

    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class _Shell:
    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        observe: Observer,
        directory: RunDirectory,
        scratch: str,
        launcher: LocalLauncher,
    ) -> None:
        self._directory = directory
        self._observe = observe
        self._launcher = launcher
        self._scratch = scratch
        self._state: State = new_state(plan, options)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = make_socket(self._context, zmq.ROUTER)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._endpoint = f"ipc://{scratch}/orchestrator"
        self._router.bind(self._endpoint)
        self._began = time.monotonic()
        self._result: RunResult | None = None
        self._stop = [False]
        self._ready: set[str] = set()

    def run(self) -> RunResult:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._launcher.fileno(), zmq.POLLIN)
        try:
            with _interruptible(self._stop):
                self._launcher.start(self._specs())
                self._feed(Started())
                while self._result is None:
                    poller.poll(POLL_MS)
                    self._turn()
                self._launcher.close(STOP_S)
        finally:
            self._router.close(0)
            self._context.term()
        return self._finished(self._result)

    def _turn(self) -> None:
        if self._stop[0]:
            self._feed(Interrupted())
        exits = self._launcher.poll()
        self._drain(50 if exits else 0)  # its last words come before its death
        self._bury(exits)
        late = self._now() > STARTUP_S and self._state.phase is RunPhase.STARTING
        if late:
            missing = sorted(set(self._state.workers) - self._ready)
            raise RunFailed(
                f"workers {', '.join(missing)} were not ready after {STARTUP_S:.0f} s",
                hint=f"see {self._directory.path}/logs",
            )

    def _bury(self, exits: list[Exit]) -> None:
        """Tell the orchestrator of processes that ended without having been stopped."""
        for ended in exits:
            if not self._state.workers[ended.worker].stopped and self._result is None:
                log = self._directory.log(ended.worker)
                self._feed(WorkerDied(worker=ended.worker, how=ended.how, log=log))

    def _lost_peer(self, survivor: str) -> None:
        """A rank says that another is gone: whose death it is, is what the user must know."""
        until = time.monotonic() + PEER_S
        while (left := until - time.monotonic()) > 0:
            select.select([self._launcher.fileno()], [], [], left)
            self._bury([ended for ended in self._launcher.poll() if ended.worker != survivor])

    def _drain(self, timeout_ms: int) -> None:
        while self._result is None and self._router.poll(timeout_ms):
            identity, data = self._router.recv_multipart()
            message = decode(data)
            self._directory.event(self._now(), False, identity.decode(), data)
            if isinstance(message, Ready):
                self._connected(message)
            if isinstance(message, Failed) and message.lost_peer:
                self._lost_peer(message.worker)
            self._feed(message)
            timeout_ms = 0

    def _connected(self, message: Ready) -> None:
        self._ready.add(message.worker)
        group = self._state.workers[message.worker].group
        started = WorkerStarted(
            name=message.worker, stage=self._serves(group.name), pid=message.pid
        )
        self._observe(started)
        if len(self._ready) == len(self._state.workers):
            # Nobody connects any more: what nobody needs cannot be left behind.
            Path(self._endpoint.removeprefix("ipc://")).unlink(missing_ok=True)

    def _serves(self, group: str) -> str:
        """The stages whose work the group does; engines serve the agents' episodes."""
        plan = self._state.plan
        found = plan.group(group)
        if found.kind == "engine":
            return ", ".join(found.agents)
        return ", ".join(s for task in plan.tasks if task.group == group for s in task.stages)

    def _feed(self, event: Event) -> None:
        for action in step(self._state, event, self._now()):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Send():
                data = encode(action.message)
                self._directory.event(self._now(), True, action.worker, data)
                self._send(action.worker, data)
            case Tell():
                self._tell(action.progress)
            case Finish():
                self._result = action.result
            case Abort():
                if self._stop[0]:
                    raise RunInterrupted("interrupted: all processes of the run were ended")
                raise RunAborted(action)

    def _send(self, worker: str, data: bytes) -> None:
        try:
            self._router.send_multipart([worker.encode(), data])
        except zmq.ZMQError as error:
            # Its connection is gone: so is the process, and the launcher is about to say so.
            if error.errno != zmq.EHOSTUNREACH:
                raise

    def _tell(self, progress: Progress) -> None:
        self._directory.progress(progress)
        self._observe(progress)

    def _specs(self) -> list[WorkerSpec]:
        options = self._state.options
        return [
            WorkerSpec(
                name=worker.name,
                group=worker.group.name,
                index=worker.index,
                plan=str(self._directory.plan_file),
                endpoint=self._endpoint,
                log=self._directory.log(worker.name),
                scratch=self._scratch,
                run_dir=str(self._directory.path),
                steps=self._state.total_steps,
                exact=options.exact,
                record=options.record,
            )
            for worker in self._state.workers.values()
        ]

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _finished(self, result: RunResult) -> RunResult:
        workers: list[Mapping[str, Any]] = [
            {"name": "orchestrator", "stage": "", "pid": os.getpid()},
            {"name": "zygote", "stage": "", "pid": self._launcher.zygote_pid},
        ]
        for worker in self._state.workers.values():
            stage = self._serves(worker.group.name)
            pid = self._launcher.pids[worker.name]
            workers.append({"name": worker.name, "stage": stage, "pid": pid})
        return replace(result, workers=tuple(workers))
