"""Host tasks built from few words, and an engine that holds answers back in a chosen order."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Agent, FunctionRef, Graph, Stage, Stream
from flowgraph.ir.plan import Plan, Schedule, Task
from flowgraph.ir.types import AGENT_ROW, SAMPLE, Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.engine.interface import Call, Completion
from flowgraph.runtime.item import Item
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.host import HostResult, HostTask
from flowgraph.runtime.stages.pump import TurnLoop, run_ready, wait

PLAYS = "tests.runtime.stages.plays"

TASKS = RecordType(
    fields=(
        SAMPLE,
        Field(name="number", dtype="int64"),
        Field(name="text", dtype="str"),
        Field(name="digits", dtype="int64", dims=(Ragged("digits"),)),
    )
)


def ref(name: str, **params: Any) -> FunctionRef:
    return FunctionRef(module=PLAYS, qualname=name, params=params)


def source(
    name: str = "tasks", *, size: int = 8, function: str = "tasks", **attributes: Any
) -> Stage:
    return Stage(
        name=name,
        op="source",
        outputs=(name,),
        attributes=attributes,
        function=ref(function, size=size),
    )


def after(before: Stage, op: str, function: str, name: str = "", **more: Any) -> Stage:
    """A stage on the only output of another; `params` go to the function."""
    name = name or function
    outputs = () if op == "sink" else (name,)
    params = more.pop("params", {})
    return Stage(
        name=name,
        op=op,
        inputs=before.outputs[-1:],
        outputs=outputs,
        attributes=more,
        function=ref(function, **params),
    )


def episodes(function: str, agents: Sequence[str] = ("solver",), **more: Any) -> Stage:
    params = more.pop("params", {})
    return Stage(
        name="games",
        op="episodes",
        inputs=("tasks",),
        outputs=tuple(f"games.{agent}" for agent in agents),
        attributes={"trajectories": 2, **more},
        function=ref(function, **params),
        agents=tuple(agents),
    )


def plan(
    *stages: Stage,
    types: Mapping[str, RecordType] | None = None,
    agents: Sequence[Agent] = (),
) -> Plan:
    """Streams have the type TASKS, or AGENT_ROW after episodes, unless told."""
    streams = []
    for stage in stages:
        usual = AGENT_ROW if stage.op == "episodes" else TASKS
        for output in stage.outputs:
            type = (types or {}).get(output, usual)
            streams.append(Stream(name=output, producer=stage.name, type=type))
    graph = Graph(name="test", stages=stages, streams=tuple(streams), agents=tuple(agents))
    cluster = Cluster(name="none", kinds=(), nodes=())
    return Plan(graph=graph, cluster=cluster, schedule=Schedule(batch=1, chunk=1))


def agent(name: str = "solver", tokenizer: FunctionRef | None = None, **sampling: Any) -> Agent:
    sampling = sampling or {"max_tokens": 3, "max_length": 64}
    return Agent(name=name, module=name, sampling=sampling, tokenizer=tokenizer)


def host(
    plan: Plan,
    *,
    gated: bool = True,
    exact: bool = False,
    seed: int = 0,
    only: Sequence[str] | None = None,
) -> HostTask:
    """All of the plan's stages but evaluations as one task that gives away all its streams.

    only: just these stages.
    """
    stages = [stage for stage in plan.graph.stages if stage.op != "evaluate"]
    if only is not None:
        stages = [stage for stage in stages if stage.name in only]
    outputs = tuple(output for stage in stages for output in stage.outputs)
    task = Task(
        name="task",
        kind="host",
        stages=tuple(stage.name for stage in stages),
        group="host",
        outputs=outputs,
        gated=gated,
    )
    return HostTask(replace(plan, tasks=(task,)), task, exact=exact, seed=seed)


def host_of(plan: Plan, stage: str) -> HostTask:
    """One stage as a task of its own, which is given the stage's inputs."""
    found = plan.graph.stage(stage)
    task = Task(
        name="task",
        kind="host",
        stages=(stage,),
        group="host",
        inputs=found.inputs,
        outputs=found.outputs,
    )
    return HostTask(replace(plan, tasks=(task,)), task, exact=False, seed=0)


def item(*units: Sequence[int], variant: int = 0, **inputs: tuple[Batch, ...]) -> Item:
    return Item(
        id=1,
        task="task",
        variant=variant,
        units=tuple(range(len(units))),
        samples=tuple(tuple(unit) for unit in units),
        inputs=inputs,
    )


def answer(call: Call) -> Completion:
    """1..max_tokens tokens of those allowed, from the call's key alone."""
    count = 1 + call.key[0] % call.sampling.max_tokens
    tokens = np.frombuffer(call.key, np.uint8)[1 : 1 + count].astype(np.int64)
    if call.sampling.allowed:
        tokens = np.array(call.sampling.allowed, np.int64)[tokens % len(call.sampling.allowed)]
    return Completion(
        id=call.id,
        tokens=tokens,
        logprobs=-np.arange(1, count + 1, dtype=np.float32),
        versions=np.full(count, 5, np.int32),
    )


class HoldingEngine:
    """Answers calls only when asked to, a few at a time, in an order drawn from `seed`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._held: list[Call] = []
        self.calls: list[tuple[str, Call]] = []

    def submit(self, calls: Sequence[tuple[str, Call]]) -> None:
        self.calls += calls
        self._held += [call for _, call in calls]

    def some(self) -> list[Completion]:
        self._random.shuffle(self._held)
        count = self._random.randint(1, max(1, len(self._held)))
        given, self._held = self._held[:count], self._held[count:]
        return [answer(call) for call in given]


class StuckEngine(HoldingEngine):
    """Answers the first call and then no other."""

    def some(self) -> list[Completion]:
        first = [call for _, call in self.calls[:1] if call in self._held]
        self._held = [call for call in self._held if call not in first]
        return [answer(call) for call in first]


def drive(
    task: HostTask,
    *items: Item,
    order: int = 0,
    engine: HoldingEngine | None = None,
    meanwhile: Callable[[CallPort], None] = lambda port: None,
) -> list[HostResult]:
    """Runs the items side by side as a worker does, until all are done."""
    loop = TurnLoop()
    port = CallPort(loop)
    engine = engine or HoldingEngine(order)
    try:
        running = [loop.create_task(task.run(one, port)) for one in items]
        while True:
            run_ready(loop)
            engine.submit(port.drain())
            meanwhile(port)
            if all(one.done() for one in running):
                return [one.result() for one in running]
            answers = engine.some()
            for completion in answers:
                port.complete(completion)
            if not answers:
                wait(loop, 5.0)
    finally:
        for one in running:
            one.cancel()
        run_ready(loop)
        loop.close()


def run(task: HostTask, *units: Sequence[int], **more: Any) -> HostResult:
    """One item of these units."""
    variant = more.pop("variant", 0)
    return drive(task, item(*units, variant=variant), **more)[0]
