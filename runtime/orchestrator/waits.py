"""Who waits for what, since when, and from whom: law 3 made visible.

`wait_report` is a pure function of the orchestrator's state, the signs of life that the shell has
seen, and the report before: a wait began when it was first reported, so `since` is right to within
the time between two reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from flowgraph.ir.plan import Task
from flowgraph.runtime.orchestrator.blocks import OWNER
from flowgraph.runtime.orchestrator.held import shares
from flowgraph.runtime.orchestrator.membership import GATE
from flowgraph.runtime.orchestrator.pools import used
from flowgraph.runtime.orchestrator.spans import ranges
from flowgraph.runtime.orchestrator.state import (
    Item,
    RunPhase,
    State,
    Step,
    Worker,
    WorkerPhase,
)
from flowgraph.runtime.orchestrator.wait_report import (
    MOST_NAMED,
    PoolUse,
    Signs,
    StreamWait,
    WaitReport,
    WorkerWait,
)


def wait_report(
    state: State, now: float, signs: Signs | None = None, before: WaitReport | None = None
) -> WaitReport:
    """The state of all waits at `now`. before: the last report, from which `since` is taken."""
    view = _View(state, now, before)
    present = state.steps[0] if state.steps else None
    workers = tuple(_worker(view, worker, signs or Signs()) for worker in state.workers.values())
    return WaitReport(
        phase=state.phase.value,
        step=present.step if present else min(state.next_step, state.total_steps),
        steps=state.total_steps,
        version=state.version,
        updates=dict(state.updates),
        blocks=len(state.references),
        workers=workers,
        streams=tuple(_streams(view)),
        held=view.held,
        pool_bytes=state.plan.pool_bytes,
        spill_bytes=state.options.spill_bytes,
    )


class _View:
    """One pass over the items, and what was reported before."""

    def __init__(self, state: State, now: float, before: WaitReport | None) -> None:
        self.state = state
        self.now = now
        was_held = before.held if before else {}
        self.held = {id: was_held.get(id, now) for id in state.items}
        self.steps = {step.order: step for step in state.steps}
        self.by_worker: dict[str, list[Item]] = {}
        self.by_task: dict[tuple[int, str], list[Item]] = {}
        for item in state.items.values():
            self.by_worker.setdefault(item.worker, []).append(item)
            if item.id in state.workers[item.worker].items:
                self.by_task.setdefault((item.order, item.task), []).append(item)
        self.asked: dict[str, dict[str, None]] = {}  # by worker, engines that have its calls
        for (token, _), call in state.calls.items():
            caller = state.living.get(token, token)
            self.asked.setdefault(caller, {})[call.engine or f"{call.agent}'s engine"] = None
        self._idle: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._workers = {w.name: w for w in before.workers} if before else {}
        self._streams = (
            {(s.task, s.step, s.evaluation): s for s in before.streams} if before else {}
        )

    def since_worker(self, name: str, state: str, waits_for: str) -> float:
        old = self._workers.get(name)
        same = old is not None and (old.state, old.waits_for) == (state, waits_for)
        return old.since if same and old is not None else self.now

    def since_stream(
        self, task: str, step: int, evaluation: bool, counts: tuple[int, ...]
    ) -> float:
        """Since when nothing has moved."""
        old = self._streams.get((task, step, evaluation))
        same = old is not None and (old.waiting, old.ready, old.running, old.done) == counts
        return old.since if same and old is not None else self.now

    def samples(self, item: Item) -> list[int]:
        step = self.steps.get(item.order)
        if step is None or item.samples:
            return list(item.samples)
        return [sample for unit in item.units for sample in step.units[unit]]

    def holders(self, order: int, tasks: list[Task]) -> tuple[str, ...]:
        """Workers that have items of these tasks, those with the oldest first."""
        items = [item for task in tasks for item in self.by_task.get((order, task.name), ())]
        return _named(item.worker for item in sorted(items, key=lambda i: self.held[i.id]))

    @cached_property
    def busy(self) -> tuple[str, ...]:
        """Everybody of whom something is expected, those that had it longest first."""
        names = [
            (min((self.held[i] for i in worker.items), default=self.now), worker.name)
            for worker in self.state.workers.values()
            if _expected(self.state, worker)
        ]
        return _named(name for _, name in sorted(names))

    @cached_property
    def pools(self) -> dict[str, tuple[int, int]]:
        return used(self.state)

    def pool(self, worker: Worker) -> PoolUse | None:
        if worker.group.kind == "engine":
            return None
        blocks, nbytes = self.pools.get(worker.token, (0, 0))
        return PoolUse(blocks=blocks, nbytes=nbytes, budget=self.state.plan.pool_bytes)

    def consumers(self, writer: Worker) -> tuple[str, ...]:
        """Who keeps blocks of the worker's pool, and who is at work on some."""
        keepers = [
            worker.name
            for worker in self.state.workers.values()
            if any(owner == writer.token for owner, _, _ in worker.held)
        ]
        items = sorted(self.state.items.values(), key=lambda item: self.held[item.id])
        readers = [
            item.worker
            for item in items
            if any(handle[OWNER] == writer.token for handle in item.reads)
        ]
        return _named(keepers + readers)

    @cached_property
    def unready(self) -> tuple[str, ...]:
        workers = self.state.workers.values()
        return _named(w.name for w in workers if w.phase is not WorkerPhase.READY)

    @cached_property
    def barrier(self) -> tuple[str, ...]:
        return _named(sorted(self.state.steps[0].waiting_for))

    def idle(self, worker: Worker) -> tuple[str, tuple[str, ...]]:
        """(what, from whom) of a worker without work: the same for all of its group."""
        group = worker.group.name
        if group not in self._idle:
            step = self.state.steps[0] if self.state.steps else None
            engine = worker.group.kind == "engine"
            found = ("calls", _players(self, worker)) if engine else _input(self, worker, step)
            self._idle[group] = found
        return self._idle[group]


def _worker(view: _View, worker: Worker, signs: Signs) -> WorkerWait:
    items = sorted(view.by_worker.get(worker.name, ()), key=lambda item: view.held[item.id])
    by_task: dict[str, list[Item]] = {}
    for item in items:
        by_task.setdefault(item.task, []).append(item)
    holds = tuple(
        (task, ranges(s for item in held for s in view.samples(item)), view.held[held[0].id])
        for task, held in by_task.items()
    )
    state, waits_for, whom = _waits(view, worker, items)
    since = view.since_worker(worker.name, state, waits_for)
    if state == "working" and items:
        since = view.held[items[0].id]
    return WorkerWait(
        name=worker.name,
        state=state,
        waits_for=waits_for,
        whom=whom,
        since=since,
        holds=holds,
        heard=signs.heard.get(worker.name),
        silent=signs.silent.get(worker.name),
        keeps=tuple((s.task, s.stream, s.blocks, s.nbytes) for s in shares(worker)),
        pool=view.pool(worker),
    )


def _waits(view: _View, worker: Worker, items: list[Item]) -> tuple[str, str, tuple[str, ...]]:
    """(state, what it waits for, from whom)."""
    state = view.state
    if state.phase is RunPhase.STOPPING:
        return ("ended", "", ()) if worker.stopped else ("working", "", ())
    if worker.phase is not WorkerPhase.READY:
        return worker.phase.value, "", ()
    if state.phase is RunPhase.STARTING:
        return "waiting", "all workers to be ready", view.unready
    if _saving(state, worker):
        return "working", "", ()
    if worker.name in state.full:
        want = state.full[worker.name]
        what = f"room for {want.nbytes:,} bytes of {want.stream} in its pool"
        return "waiting", what, view.consumers(worker)
    step = state.steps[0] if state.steps else None
    if step is not None and step.waiting_for:
        if worker.name in step.waiting_for:
            return "working", "", ()
        return "waiting", f"weights of version {state.version + 1}", view.barrier
    if worker.group.kind == "engine":
        if worker.inflight:
            return "working", "", ()
        return "waiting", *view.idle(worker)
    own = [item for item in items if item.id in worker.items]
    if worker.fetching and worker.fetching.issuperset(item.id for item in own or items):
        return "waiting", "blocks of another node", worker.porters
    if worker.name in view.asked:
        return "waiting", "answers of engines", _named(view.asked[worker.name])
    if own:
        return "working", "", ()
    if items:
        return "waiting", "gradients", _gradient_sources(view, items)
    return "waiting", *view.idle(worker)


def _input(view: _View, worker: Worker, step: Step | None) -> tuple[str, tuple[str, ...]]:
    """What an idle worker's next work is missing."""
    if step is None:
        return "the run's end", view.busy
    if not step.formed:
        return f"samples of step {step.step}", view.holders(GATE, list(view.state.plan.tasks))
    for task in _own_tasks(view.state, worker, step):
        progress = step.tasks[task.name]
        if progress.all_done:
            continue
        sources = _unfinished(view.state, step, task)
        whom = view.holders(step.order, sources) or view.busy
        streams = ", ".join(task.inputs) or "samples"
        return f"{streams} of step {step.step}", whom
    return f"the end of step {step.step}", view.busy


def _streams(view: _View) -> list[StreamWait]:
    found = []
    state = view.state
    gate = next((task for task in state.plan.tasks if not task.gated), None)
    if gate is not None:
        running = len(view.by_task.get((GATE, gate.name), ()))
        counts = (0, len(state.gate_admitted), running, 0)
        found.append(_stream(view, gate, None, counts, view.holders(GATE, [gate])))
    for step in state.steps:
        for task in state.topology.tasks_for(step.variant):
            if not step.formed or not task.inputs:
                continue
            progress = step.tasks[task.name]
            items = view.by_task.get((step.order, task.name), ())
            running = sum(len(item.units) for item in items)
            ready, done = sum(progress.ready_units), sum(progress.done)
            waiting = len(progress.status) - ready - running - done
            sources = _unfinished(state, step, task)
            whom = view.holders(step.order, sources) if waiting else ()
            found.append(_stream(view, task, step, (waiting, ready, running, done), whom))
    return found


def _stream(
    view: _View,
    task: Task,
    step: Step | None,
    counts: tuple[int, int, int, int],
    whom: tuple[str, ...],
) -> StreamWait:
    number, evaluation = (-1, False) if step is None else (step.step, step.variant > 0)
    waiting, ready, running, done = counts
    return StreamWait(
        task=task.name,
        streams=task.inputs or task.outputs,
        step=number,
        evaluation=evaluation,
        waiting=waiting,
        ready=ready,
        running=running,
        done=done,
        whom=whom,
        since=view.since_stream(task.name, number, evaluation, counts),
    )


def _own_tasks(state: State, worker: Worker, step: Step) -> list[Task]:
    tasks = state.topology.tasks_for(step.variant)
    return [task for task in tasks if task.group == worker.group.name]


def _unfinished(state: State, step: Step, task: Task) -> list[Task]:
    """Tasks upstream of this one that are not done in the step, the nearest first."""
    tasks = state.topology.tasks_for(step.variant)
    wanted, found = set(task.inputs), []
    for other in reversed(tasks):
        if wanted & set(other.outputs):
            wanted |= set(other.inputs)
            if not step.tasks[other.name].all_done:
                found.append(other)
    return found


def _players(view: _View, engine: Worker) -> tuple[str, ...]:
    """Workers that play one of the engine's agents now, though no call of theirs is open."""
    agents = set(engine.group.agents)
    graph = view.state.plan.graph
    tasks = [
        task
        for task in view.state.plan.tasks
        if any(agents & set(graph.stage(name).agents) for name in task.stages)
    ]
    names: list[str] = []
    for step in view.state.steps:
        names += view.holders(step.order, tasks)
    return _named(names) or view.busy


def _gradient_sources(view: _View, items: list[Item]) -> tuple[str, ...]:
    names: list[str] = []
    for item in items:
        source = view.state.topology.gradient_source(view.state.plan.task(item.task))
        if source is not None:
            names += view.holders(item.order, [source])
    return _named(names) or view.busy


def _expected(state: State, worker: Worker) -> bool:
    barrier = bool(state.steps) and worker.name in state.steps[0].waiting_for
    return bool(worker.items or worker.inflight or barrier or _saving(state, worker))


def _saving(state: State, worker: Worker) -> bool:
    return any(worker.name in waiting for waiting in state.saving.values())


def _named(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))[:MOST_NAMED]
