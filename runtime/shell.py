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
from flowgraph.runtime.checkpoint import commit, latest
from flowgraph.runtime.launch.local import Exit, LocalLauncher
from flowgraph.runtime.messages import Failed, Ready, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.checkpoints import folder as checkpoint_folder
from flowgraph.runtime.orchestrator.checkpoints import restore
from flowgraph.runtime.orchestrator.core import step
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    Commit,
    Event,
    Finish,
    Interrupted,
    Send,
    Started,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.state import RunPhase, State, new_state
from flowgraph.runtime.progress import Observer, Progress, Restarted, RunResult, WorkerStarted
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.silence import Silence
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.switchboard import Switchboard
from flowgraph.runtime.worker.spec import WorkerSpec

STARTUP_S = 900.0
"""Seconds until all workers must be ready: the largest models load within it."""

STOP_S = 5.0
"""Seconds that workers get to end by themselves after the run's last message."""

PEER_S = 2.0
"""Seconds in which the end of a lost rank must be seen, before its survivor's error is told."""

POLL_MS = 1000


class RunAborted(RunFailed):
    """The run ended early. `trace`: the worker's traceback; `stage`, `sample`: where, if known.

    lost: a process was lost, and not by the user's code raising.
    """

    def __init__(self, abort: Abort) -> None:
        at = None
        if abort.at:
            file, _, line = abort.at.rpartition(":")
            at = Location(file, int(line)) if line.isdigit() else None
        super().__init__(abort.what, at=at, hint=abort.hint or None)
        self.trace = abort.traceback
        self.stage = abort.stage
        self.sample = abort.sample
        self.lost = abort.lost


class RunInterrupted(RunFailed):
    """The user ended the run (Ctrl-C or SIGTERM)."""


def run_plan(plan: Plan, options: RunOptions, observe: Observer) -> RunResult:
    """Run the plan's processes to the end.

    Raises RunAborted, RunInterrupted, or ConfigurationError for a run directory that exists.
    """
    with _interruptible() as stop:
        return _supervised(plan, options, observe, RunDirectory.create(options, plan), stop)


def resume_run(run_dir: str, observe: Observer) -> RunResult:
    """Go on with a run that ended early, to the steps first asked for.

    From its last checkpoint, or from step 0 without one; a finished run's result again. Raises what
    `run_plan` does, and ConfigurationError for what is no run directory.
    """
    directory = RunDirectory.reopen(Path(run_dir))
    finished = directory.result()
    if finished is not None:
        directory.close()
        return finished
    directory.outcome("running")
    with _interruptible() as stop:
        return _supervised(directory.plan, directory.options, observe, directory, stop)


def _supervised(
    plan: Plan,
    options: RunOptions,
    observe: Observer,
    directory: RunDirectory,
    stop: list[bool],
) -> RunResult:
    """Attempts until one ends the run: lost workers are replaced, from the last checkpoint."""
    refused = Refusals()
    restarts = 0
    try:
        while True:
            checkpoint = latest(directory.checkpoints)
            directory.rewind(checkpoint)
            try:
                result = _attempt(plan, options, observe, directory, refused, checkpoint, stop)
            except RunAborted as error:
                if not error.lost or restarts == options.restarts:
                    raise
                restarts += 1
                observe(Restarted(cause=error.what, restart=restarts, of=options.restarts))
            else:
                directory.finished(result, refused=refused.to_plain(), restarts=restarts)
                return result
    except RunInterrupted:
        directory.outcome("interrupted", refused=refused.to_plain(), restarts=restarts)
        raise
    except BaseException as error:
        details = {"refused": refused.to_plain(), "restarts": restarts}
        directory.outcome("failed", error=str(error), **details)
        raise
    finally:
        directory.close()


def _attempt(
    plan: Plan,
    options: RunOptions,
    observe: Observer,
    directory: RunDirectory,
    refused: Refusals,
    checkpoint: Path | None,
    stop: list[bool],
) -> RunResult:
    with tempfile.TemporaryDirectory(prefix="flowgraph-") as scratch, LocalLauncher() as launcher:
        return _Shell(
            plan, options, observe, directory, scratch, launcher, refused, checkpoint, stop
        ).run()


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """SIGINT, SIGTERM and a closed terminal set the flag instead of raising amid something.

    All the while: a second Ctrl-C must not break off the ending of processes. `nohup` stays obeyed.
    """
    stop = [False]

    def ask(_signal: int, _frame: FrameType | None) -> None:
        stop[0] = True

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield stop
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
        refused: Refusals,
        checkpoint: Path | None,
        stop: list[bool],
    ) -> None:
        self._checkpoint = checkpoint
        self._directory = directory
        self._observe = observe
        self._launcher = launcher
        self._scratch = scratch
        self._state: State = new_state(plan, options)
        if checkpoint is not None:
            restore(self._state, (checkpoint / "run.msgpack").read_bytes())
        self._board = Switchboard(scratch, self._state.workers, refused, options.listen)
        self._began = time.monotonic()
        self._result: RunResult | None = None
        self._stop = stop
        self._ready: set[str] = set()
        self._silence = Silence(options.silence_s)
        self._silenced: dict[str, float] = {}  # workers killed for their silence, and its seconds

    def run(self) -> RunResult:
        poller = zmq.Poller()
        self._board.register(poller)
        poller.register(self._launcher.fileno(), zmq.POLLIN)
        try:
            self._launcher.start(self._specs())
            self._feed(Started())
            while self._result is None:
                poller.poll(POLL_MS)
                self._turn()
            self._launcher.close(STOP_S)
        finally:
            self._board.close()
        return self._finished(self._result)

    def _turn(self) -> None:
        if self._stop[0]:
            self._feed(Interrupted())
        exits = self._launcher.poll()
        self._drain(50 if exits else 0)  # its last words come before its death
        self._bury(exits)
        self._end_silence()
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
                self._feed(WorkerDied(worker=ended.worker, how=self._how(ended), log=log))

    def _end_silence(self) -> None:
        """Kill workers that hang; their end is then told like any other."""
        if self._result is not None:
            return
        for worker, seconds in self._silence.over(self._state, self._now()):
            if worker not in self._silenced:
                self._silenced[worker] = seconds
                os.kill(self._launcher.pids[worker], signal.SIGKILL)

    def _how(self, ended: Exit) -> str:
        seconds = self._silenced.get(ended.worker)
        return ended.how if seconds is None else f"said nothing for {seconds:.0f} s and was killed"

    def _lost_peer(self, survivor: str) -> None:
        """A rank says that another is gone: whose death it is, is what the user must know."""
        until = time.monotonic() + PEER_S
        while (left := until - time.monotonic()) > 0:
            select.select([self._launcher.fileno()], [], [], left)
            self._bury([ended for ended in self._launcher.poll() if ended.worker != survivor])

    def _drain(self, timeout_ms: int) -> None:
        while self._result is None and (received := self._board.receive(timeout_ms)):
            worker, message, data = received
            self._silence.heard(worker, self._now())
            self._directory.event(self._now(), False, worker, data)
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
            self._board.seal()

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
                self._board.send(action.worker, data)
            case Tell():
                self._tell(action.progress)
            case Commit():
                folder = checkpoint_folder(str(self._directory.path), action.step)
                commit(Path(folder), action.data)
            case Finish():
                self._result = action.result
            case Abort():
                if self._stop[0]:
                    raise RunInterrupted("interrupted: all processes of the run were ended")
                raise RunAborted(action)

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
                endpoint=self._board.endpoint,
                keys=self._board.key_file(worker.name),
                log=self._directory.log(worker.name),
                scratch=self._scratch,
                run_dir=str(self._directory.path),
                steps=self._state.total_steps,
                exact=options.exact,
                record=options.record,
                restore=str(self._checkpoint) if self._checkpoint else "",
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
