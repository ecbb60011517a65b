"""One attempt at a run: processes, sockets and clocks around the orchestrator's core.

Guarantees: whatever way it is left (end, failure, Ctrl-C, an exception of ours), no socket of the
run is left; a worker's death is noticed at once, by the kernel's word. See `supervise.py` for what
follows an attempt.
"""

import os
import select
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from flowgraph.ir.errors import RunFailed
from flowgraph.ir.location import Location
from flowgraph.ir.plan import Plan
from flowgraph.runtime.checkpoint import commit
from flowgraph.runtime.failures import CannotWrite
from flowgraph.runtime.hangs import Hangs
from flowgraph.runtime.heartbeats import period
from flowgraph.runtime.last_words import LastWords
from flowgraph.runtime.launch.local import Exit, LocalLauncher
from flowgraph.runtime.launch.ports import Ports, open_ports
from flowgraph.runtime.logbook import Logbook
from flowgraph.runtime.messages import Failed, Ready, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.checkpoints import folder as checkpoint_folder
from flowgraph.runtime.orchestrator.checkpoints import restore
from flowgraph.runtime.orchestrator.core import step
from flowgraph.runtime.orchestrator.events import (
    Abort,
    Action,
    CloseSegment,
    Commit,
    Event,
    Finish,
    Interrupted,
    Refuse,
    Send,
    Start,
    Started,
    Tell,
    WorkerDied,
)
from flowgraph.runtime.orchestrator.state import RunPhase, State, Worker, WorkerPhase, new_state
from flowgraph.runtime.orchestrator.wait_report import Signs
from flowgraph.runtime.progress import (
    Observer,
    PorterStarted,
    Progress,
    Restarted,
    RunResult,
    WorkerStarted,
)
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.transport.porter import porter_of
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

ENGINE_POOL = 1 << 12
"""Bytes of an engine's segment: it writes no records."""


class RunAborted(RunFailed):
    """The run ended early. `trace`: the worker's traceback; `stage`, `sample`: where, if known.

    training: the sample's work was a training step's, not an evaluation's.
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
        self.cause = abort.cause
        self.sample = abort.sample
        self.training = abort.training
        self.lost = abort.lost


class RunInterrupted(RunFailed):
    """The user ended the run (Ctrl-C or SIGTERM)."""


class Shell:
    """One attempt at the run: `run` takes it to its end, with new processes."""

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
        restarts: int,
    ) -> None:
        self._checkpoint = checkpoint
        self._directory = directory
        self._observe = observe
        self._launcher = launcher
        self._scratch = scratch
        self._state: State = new_state(plan, options, directory.journal.quarantined())
        self._state.restarts = restarts
        if checkpoint is not None:
            restore(self._state, (checkpoint / "run.msgpack").read_bytes())
        self._board = Switchboard(scratch, self._state.workers, refused, options.listen)
        self._began = time.monotonic()
        self._result: RunResult | None = None
        self._stop = stop
        self._refused = refused
        self._ports = Ports(nodes={}, porters={}, keys=Path(scratch))
        self._started = dict.fromkeys(self._state.workers, 0.0)  # when, by worker
        self._log = Logbook(directory.journal)
        self._hangs = Hangs(self._state.workers, options)
        self._last_words = LastWords({name: directory.log(name) for name in self._state.workers})

    def run(self) -> RunResult:
        poller = zmq.Poller()
        self._board.register(poller)
        poller.register(self._launcher.fileno(), zmq.POLLIN)
        try:
            self._ports = open_ports(
                self._state.plan, self._scratch, self._launcher, self._directory.log
            )
            for node, endpoint in self._ports.porters.items():
                pid = self._launcher.pids[porter_of(node)]
                self._observe(PorterStarted(node=node, pid=pid, endpoint=endpoint))
            self._launcher.start([self._spec(worker) for worker in self._state.workers.values()])
            self._feed(Started())
            while self._result is None:
                poller.poll(POLL_MS)
                self._turn()
            finished = self._finished(self._result)
            self._launcher.close(STOP_S)
        finally:
            self._board.close()
            self._log.last(self._state, self._now(), self._signs)
        return finished

    def _turn(self) -> None:
        if self._stop[0]:
            self._feed(Interrupted())
        exits = self._launcher.poll()
        self._drain(50 if exits else 0)  # its last words come before its death
        self._bury(exits)
        self._end_silence()
        self._log.waits(self._state, self._now(), self._signs)
        self._end_starting()

    def _bury(self, exits: list[Exit]) -> None:
        """Tell the orchestrator of processes that ended without having been stopped."""
        for ended in exits:
            how = self._hangs.how(ended.worker, ended.how)
            trace, at = self._last_words.of(ended.worker)
            if not self._state.workers[ended.worker].stopped and self._result is None:
                log = self._directory.log(ended.worker)
                death = WorkerDied(
                    worker=ended.worker,
                    incarnation=ended.incarnation,
                    how=how,
                    log=log,
                    death=ended.death,
                    trace=trace,
                    at=at,
                )
                self._feed(death)

    def _end_silence(self) -> None:
        """Kill workers that hang; their end is then told like any other."""
        if self._result is None:
            pids = self._launcher.pids
            self._hangs.end(self._state, self._board.beats, pids, self._now())

    def _end_starting(self) -> None:
        """A process that is not ready in time is ended, or with it the run that never began."""
        overdue = self._now() - STARTUP_S
        if overdue < 0 or self._result is not None:
            return
        late = [
            worker.name
            for worker in self._state.workers.values()
            if worker.phase is WorkerPhase.STARTING and self._started[worker.name] < overdue
        ]
        if late and self._state.phase is RunPhase.STARTING:
            raise RunFailed(
                f"workers {', '.join(sorted(late))} were not ready after {STARTUP_S:.0f} s",
                hint=f"see {self._directory.path}/logs",
            )
        for name in late:
            why = f"was not ready after {STARTUP_S:.0f} s"
            self._hangs.kill(name, self._launcher.pids, why, self._now())

    def _lost_peer(self, survivor: str) -> None:
        """A rank says that another is gone: whose death it is, is what the user must know."""
        until = time.monotonic() + PEER_S
        while (left := until - time.monotonic()) > 0:
            select.select([self._launcher.fileno()], [], [], left)
            self._bury([ended for ended in self._launcher.poll() if ended.worker != survivor])

    def _drain(self, timeout_ms: int) -> None:
        while self._result is None and (received := self._board.receive(timeout_ms)):
            worker, message, data = received
            self._hangs.heard(worker, self._now())
            entry = self._log.received(self._now(), worker, message, data)
            if isinstance(message, Ready):
                self._connected(message)
            if isinstance(message, Failed) and message.lost_peer:
                self._lost_peer(message.worker)
            self._feed(message, entry)
            timeout_ms = 0

    def _connected(self, message: Ready) -> None:
        group = self._state.workers[message.worker].group
        started = WorkerStarted(
            name=message.worker, stage=self._serves(group.name), pid=message.pid
        )
        self._observe(started)

    def _serves(self, group: str) -> str:
        """The stages whose work the group does; engines serve the agents' episodes."""
        plan = self._state.plan
        found = plan.group(group)
        if found.kind == "engine":
            return ", ".join(found.agents)
        return ", ".join(s for task in plan.tasks if task.group == group for s in task.stages)

    def _feed(self, event: Event, entry: int = 0) -> None:
        """entry: of the message in the journal; what is no message gets one here."""
        if isinstance(event, Started | WorkerDied | Interrupted):
            entry = self._log.happened(self._now(), event)
        for action in step(self._state, event, self._now()):
            self._act(action, entry)

    def _signs(self) -> Signs:
        return self._hangs.signs(self._now())

    def _act(self, action: Action, cause: int) -> None:
        match action:
            case Send():
                data = encode(action.message)
                self._log.sent(self._now(), action.worker, action.message, data, cause)
                self._board.send(action.worker, data)
            case Tell():
                self._tell(action.progress)
            case Commit():
                folder = checkpoint_folder(str(self._directory.path), action.step)
                self._directory.journal.flush()  # whatever led to a checkpoint is told on disk
                try:
                    commit(Path(folder), action.data)
                except OSError as error:
                    raise CannotWrite(folder, error) from error
                self._directory.journal.checkpoint(self._now(), action.step)
            case Start():
                self._restart(self._state.workers[action.worker])
            case CloseSegment():
                self._launcher.close_segment(action.worker, action.incarnation)
            case Refuse():
                self._refused.add(action.reason, action.what)
            case Finish():
                self._result = action.result
            case Abort():
                if self._stop[0]:
                    raise RunInterrupted("interrupted: all processes of the run were ended")
                raise RunAborted(action)

    def _tell(self, progress: Progress) -> None:
        self._directory.progress(progress)
        if isinstance(progress, Restarted) and progress.worker:
            self._directory.journal.restart(self._now(), progress.worker, progress.cause)
        self._observe(progress)

    def _restart(self, worker: Worker) -> None:
        self._board.replace(worker.name, worker.token)
        self._started[worker.name] = self._now()
        self._launcher.start([self._spec(worker)])

    def _spec(self, worker: Worker) -> WorkerSpec:
        options = self._state.options
        writes = worker.group.kind != "engine"
        return WorkerSpec(
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
            beat_s=period(options.liveness_s),
            retries=options.retries,
            incarnation=worker.incarnation,
            pool_bytes=self._state.plan.pool_bytes if writes else ENGINE_POOL,
            spill_bytes=options.spill_bytes if writes else 0,
            spill_dir=options.spill_dir or self._scratch,
            node=self._ports.nodes[worker.name],
            porters=self._ports.porters,
            block_keys=self._ports.key_file(worker.name),
            fetch_s=options.fetch_s,
        )

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _finished(self, result: RunResult) -> RunResult:
        workers: list[Mapping[str, Any]] = [
            {"name": "orchestrator", "stage": "", "pid": os.getpid()},
            {"name": "zygote", "stage": "", "pid": self._launcher.zygote_pid},
        ]
        for porter in self._launcher.porters:
            workers.append({"name": porter, "stage": "", "pid": self._launcher.pids[porter]})
        for worker in self._state.workers.values():
            stage = self._serves(worker.group.name)
            pid = self._launcher.pids[worker.name]
            workers.append({"name": worker.name, "stage": stage, "pid": pid})
        return replace(result, workers=tuple(workers))
