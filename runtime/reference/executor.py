"""The reference executor: one process, no overlap, the same graph, the same executors.

Law 1 is stated against it: in exact mode a run's weights equal these bit for bit. The user's
functions run in the main thread, so `breakpoint()` works in them.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from flowgraph.ir.errors import ConfigurationError, RunFailed
from flowgraph.ir.plan import Plan, Task
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.engine.interface import Completion
from flowgraph.runtime.engine.torch_engine import TorchEngine
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.item import Item
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.orchestrator.drought import HINT, drought
from flowgraph.runtime.orchestrator.quarantine import Quarantine, walk
from flowgraph.runtime.orchestrator.records import Record
from flowgraph.runtime.progress import (
    EvaluationFinished,
    Observer,
    Progress,
    PutAside,
    RunResult,
    RunStarted,
    StepFinished,
    WorkerStarted,
    first_and_last,
)
from flowgraph.runtime.reference.step_pass import Pass
from flowgraph.runtime.run_directory import RunDirectory
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.faults import in_variant
from flowgraph.runtime.stages.host import HostResult, HostTask
from flowgraph.runtime.stages.pump import TurnLoop, run_ready, wait
from flowgraph.runtime.stages.retries import tried
from flowgraph.runtime.topology import Topology, evaluation_due
from flowgraph.runtime.trainer.collective import Alone
from flowgraph.runtime.trainer.interface import UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from flowgraph.runtime.worker.engine import make_engine
from flowgraph.runtime.worker.entry import prepare_torch
from flowgraph.runtime.worker.recording import Recorder


def run_reference(
    plan: Plan, options: RunOptions, observe: Observer, quarantined: Iterable[int] = ()
) -> RunResult:
    """Run the plan's graph to the end in this process.

    quarantined: samples that are put aside from the start. One more that fails is put aside as in a
    run, up to `options.quarantine`: all is done again from the first step without it.
    Raises StageFailed where a worker of a run would, and ConfigurationError for a run directory
    that exists.
    """
    directory = RunDirectory.create(options, plan)
    prepare_torch(options.exact)
    try:
        result = _attempts(plan, options, observe, directory, set(quarantined))
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        directory.ended_early(error, "interrupted" if interrupted else "failed")
        raise
    else:
        directory.finished(result)
    finally:
        directory.close()
    return result


def _attempts(
    plan: Plan,
    options: RunOptions,
    observe: Observer,
    directory: RunDirectory,
    quarantined: set[int],
) -> RunResult:
    cause = ""
    while True:
        directory.journal.attempt(directory.rewind(None), cause)
        try:
            return Reference(plan, options, observe, directory, quarantined).run()
        except StageFailed as error:
            count = len(directory.journal.quarantined())
            if error.sample is None or error.evaluating or count >= options.quarantine:
                raise
            place = "" if error.at is None else str(error.at)
            directory.journal.quarantine(error.sample, error.stage, error.cause, place, error.trace)
            quarantined.add(error.sample)
            cause = error.what
            aside = PutAside(
                sample=error.sample,
                stage=error.stage,
                cause=error.cause,
                count=count + 1,
                of=options.quarantine,
            )
            observe(aside)


class Reference:
    """Everything a run has, in one place: host tasks, an engine an agent, one rank a module."""

    def __init__(
        self,
        plan: Plan,
        options: RunOptions,
        observe: Observer,
        directory: RunDirectory,
        quarantined: Iterable[int] = (),
    ) -> None:
        self.plan = plan
        self.topology = Topology(plan)
        self._options = options
        self._directory = directory
        self._watch = observe
        self._steps = plan.graph.steps if options.steps is None else options.steps
        self._loop = TurnLoop()
        self._port = CallPort(self._loop)
        seed, exact = plan.graph.seed, options.exact
        self._hosts = {
            task.name: HostTask(plan, task, exact=exact, seed=seed)
            for task in self.topology.of_kind("host")
        }
        self._engines: dict[str, TorchEngine] = {}
        for group in plan.groups:
            if group.kind == "engine":
                engine = make_engine(plan, group.name, exact=exact)
                self._engines.update(dict.fromkeys(group.agents, engine))
        self._ranks = {
            group.module: Rank(
                plan,
                group.module,
                rank=0,
                world=1,
                steps=self._steps,
                exact=exact,
                seed=seed,
                collective=Alone(),
            )
            for group in plan.groups
            if group.kind == "gang"
        }
        self._initial = {name: rank.weights_digest() for name, rank in self._ranks.items()}
        self._recorders: dict[str, Recorder] = {}
        if options.record:
            self._recorders = {name: Recorder(str(directory.path), name) for name in self._ranks}
        self._updates = dict.fromkeys(self.topology.trained_modules(), 0)
        self._evaluations: dict[str, dict[str, float]] = {}
        self._records: dict[tuple[str, str], Record] = {}
        self.gate_recorded = 0  # source positions whose verdicts have been counted
        self._history: list[dict[str, dict[str, float]]] = []
        self._version = 0
        self._next_item = 0
        self._cursor = 0  # source position that the filters see next
        self._admitted: list[int] = []
        self._dropped = 0  # source positions in a row of which none passed
        self._quarantine = Quarantine(plan.graph, quarantined)
        self._source_size = self.source_size(0)  # as the orchestrator is told it: at the start

    def run(self) -> RunResult:
        self._tell(WorkerStarted(name="reference", stage="all", pid=os.getpid()))
        if self._options.only is not None:
            self._replay(self._options.only)
            return self._result()
        self._tell(RunStarted(steps=self._steps))
        step = 0
        while step < self._steps:
            samples = self._membership()
            if not samples:
                break
            self._evaluate(step, self._steps)
            self._train(step, samples)
            step += 1
        self._evaluate(step, step)
        folder = self._directory.path / "checkpoints" / "final"
        folder.mkdir(parents=True)
        for name, rank in self._ranks.items():
            rank.save(str(folder / f"{name}.safetensors"))
        return self._result()

    def _replay(self, sample: int) -> None:
        """One sample through every task, at the first weights, without an update."""
        if sample < 0:
            raise ConfigurationError(f"--only {sample}: sample ids count from 0")
        self.gate_recorded = sample
        Pass(self, 0, 0, (sample,)).part(0)

    def _membership(self) -> tuple[int, ...]:
        """The next step's samples: the first that pass, in the source's order."""
        batch = self.plan.schedule.batch
        source = self.plan.graph.by_op("source")[0]
        at_end = source.attributes.get("at_end", "loop")
        size = self._source_size
        gate = next((task for task in self.plan.tasks if not task.gated), None)
        unit = self.topology.unit_samples(self._options.exact) if gate else batch
        if gate is None:
            found, self._cursor = walk(
                self._quarantine, self._cursor, batch, size=size, loop=at_end == "loop"
            )
            self._admitted += found
        while gate is not None and len(self._admitted) < batch:
            block = range(self._cursor, self._cursor + unit)
            if at_end != "loop" and size >= 0:
                block = range(block.start, min(block.stop, size))
            if not block or self._quarantine.everything(block.start, size):
                break
            self._cursor = block.stop
            seen = tuple(at for at in block if not self._quarantine.excludes(at, size))
            kept: tuple[int, ...] = ()
            if seen:
                item = self.item(gate, 0, -1, 0, (0,), (seen,), {})
                kept = self.host([(gate, item)])[0].kept
                self._admitted += kept
            self._dropped = 0 if kept else self._dropped + unit
            if at_end == "loop" and (what := drought(self._dropped, size)):
                raise RunFailed(what, hint=HINT)
        taken, self._admitted = self._admitted[:batch], self._admitted[batch:]
        if len(taken) < batch and at_end == "drop":
            return ()
        return tuple(taken)

    def source_size(self, variant: int) -> int:
        sizes = [host.source_size(variant) for host in self._hosts.values()]
        return next((size for size in sizes if size is not None), -1)

    def _train(self, step: int, samples: tuple[int, ...]) -> None:
        began = time.perf_counter()
        work = Pass(self, 0, step, samples)
        for part in range(len(work.parts)):
            work.part(part)
            self._update(work, step, part)
        self._publish()
        metrics = work.means()
        self._history.append(metrics)
        self._tell(
            StepFinished(
                step=step,
                seconds=time.perf_counter() - began,
                metrics=metrics,
                tokens=work.tokens,
                busy={},
            )
        )

    def _update(self, work: Pass, step: int, part: int) -> None:
        units = work.parts[part]
        for module in self._updates:
            weights = work.weights.get(self.topology.loss_task(module).name, {})
            order = UpdateOrder(
                step=step,
                part=part,
                divisor=float(sum(weights.get(unit, 0.0) for unit in units)),
                owners=tuple((unit, 0) for unit in units if unit in work.owned.get(module, ())),
            )
            for name, value in self._ranks[module].update(order).items():
                work.add((module, name), value, 1.0)
            self._updates[module] += 1
            if step == 0 and part == 0 and module in self._recorders:
                flat = self._ranks[module].flat_gradient()
                self._recorders[module].gradient(flat, order.divisor)
        self._recorders = {}
        self._version += 1

    def _publish(self) -> None:
        for module in self._updates:
            agents = [agent for group in self.topology.engines(module) for agent in group.agents]
            if not agents:
                continue
            flat, digest = self._ranks[module].publish()
            for engine in {id(self._engines[a]): self._engines[a] for a in agents}.values():
                engine.load_weights(self._version, flat, digest)

    def _evaluate(self, step: int, total: int) -> None:
        for variant, stage in enumerate(self.topology.variants(), start=1):
            if not evaluation_due(stage, step, total):
                continue
            size = self.source_size(variant)
            count = int(stage.attributes["samples"])
            work = Pass(self, variant, step, tuple(range(count if size < 0 else min(count, size))))
            with in_variant(variant):
                work.part(0)
            figures = {
                name if scope == stage.name else f"{scope}.{name}": value
                for scope, named in work.means().items()
                for name, value in named.items()
            }
            self._evaluations[stage.name] = figures
            self._tell(EvaluationFinished(name=stage.name, step=step, figures=figures))

    def item(
        self,
        task: Task,
        variant: int,
        step: int,
        part: int,
        units: tuple[int, ...],
        samples: tuple[tuple[int, ...], ...],
        inputs: dict[str, tuple[Batch, ...]],
    ) -> Item:
        self._next_item += 1
        return Item(
            id=self._next_item,
            task=task.name,
            variant=variant,
            step=step,
            part=part,
            version=self._version,
            units=units,
            samples=samples,
            inputs=inputs,
        )

    def host(self, work: list[tuple[Task, Item]]) -> list[HostResult]:
        """Run host items together; engines are advanced when their functions wait for them."""
        retries = 0 if self._options.only is not None else self._options.retries
        running = [
            self._loop.create_task(
                tried(partial(self._hosts[task.name].run, item, self._port), retries)
            )
            for task, item in work
        ]
        while True:
            run_ready(self._loop)
            for agent, call in self._port.drain():
                self._engines[agent].submit([call])
            done = self._advance()
            for completion in done:
                self._port.complete(completion)
            failed = next((t for t in running if t.done() and t.exception()), None)
            if failed:
                for task in running:
                    task.cancel()
                run_ready(self._loop)
                return [failed.result()]
            if all(task.done() for task in running):
                return [task.result() for task in running]
            if not done and not any(engine.pending for engine in self._engines.values()):
                wait(self._loop)

    def _advance(self) -> list[Completion]:
        engines = {id(engine): engine for engine in self._engines.values()}.values()
        return [c for engine in engines if engine.pending for c in engine.advance()]

    def rank(self, task: Task) -> Rank:
        return self._ranks[self.topology.module_of(task).name]

    def seen_until(self, position: int) -> int:
        """Source positions up to this one that the filters saw and that were not counted yet."""
        positions = range(self.gate_recorded, position + 1)
        if not self._quarantine.samples:
            return len(positions)
        size = self._source_size
        return sum(not self._quarantine.excludes(at, size) for at in positions)

    def record(self, stream: str, consumer: str) -> Record:
        return self._records.setdefault((stream, consumer), Record())

    def keep(self, module: str, item: Item) -> None:
        """With `--record`: the rows of the first update."""
        if module in self._recorders:
            self._recorders[module].rows(item)

    @property
    def exact(self) -> bool:
        return self._options.exact

    def _tell(self, progress: Progress) -> None:
        self._directory.progress(progress)
        self._watch(progress)

    def _result(self) -> RunResult:
        samples = {
            f"{stream}/{consumer}": {
                "admitted": record.admitted,
                "consumed": record.consumed,
                "dropped": record.dropped,
                "in_flight": record.in_flight,
            }
            for (stream, consumer), record in sorted(self._records.items())
        }
        result = RunResult(
            steps=len(self._history),
            samples=samples,
            updates=dict(self._updates),
            metrics=first_and_last(self._history),
            evaluations=self._evaluations,
            weights_digest={n: rank.weights_digest() for n, rank in sorted(self._ranks.items())},
            initial_digest=dict(sorted(self._initial.items())),
            quarantined=len(self._quarantine.samples),
        )
        workers = ({"name": "reference", "stage": "all", "pid": os.getpid()},)
        return replace(result, workers=workers)
