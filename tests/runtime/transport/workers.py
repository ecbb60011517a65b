"""Workers of this process that read another node's blocks, and are told what an orchestrator would
tell them."""

import select
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

import flowgraph as fg
from flowgraph.ir.plan import Place, Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.calls import completion_to_plain
from flowgraph.runtime.engine.interface import Completion
from flowgraph.runtime.messages import Answers, FromWorker, Issued, Message, PlainHandle, Run
from flowgraph.runtime.worker.gang import GangWorker
from flowgraph.runtime.worker.spec import WorkerSpec
from flowgraph.runtime.worker.stage import StageWorker
from tests.runs.running import TWO_CORES
from tests.runtime.orchestrator.live import Wire

CHOSEN = Path(__file__).parent / "graphs" / "chosen.py"


class Waking(Wire):
    """A connection that waits as a worker's does: for a message, or what it is to wake on."""

    def __init__(self, name: str) -> None:
        super().__init__(name, 0, lambda _: None)
        self._poll = select.poll()
        self._once: tuple[type[FromWorker], Callable[[], None]] | None = None

    def once(self, kind: type[FromWorker], then: Callable[[], None]) -> None:
        """When it first says such a thing, do this."""
        self._once = kind, then

    def send(self, message: FromWorker) -> None:
        super().send(message)
        if self._once is not None and isinstance(message, self._once[0]):
            self._once[1]()

    def also_wake_on(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def receive(self, timeout_ms: int) -> list[Message]:
        if not self.inbox:
            self._poll.poll(timeout_ms)
        return super().receive(0)


class Worker:
    """A worker of this process, and what it says."""

    def __init__(self, kind: type[StageWorker | GangWorker], plan: Plan, spec: WorkerSpec) -> None:
        self.wire = Waking(spec.name)
        self.worker = kind(spec, plan, self.wire)
        self.worker.begin(1)
        self.wire.said.clear()

    def told(self, *messages: Message) -> list[object]:
        """What it says to these without waiting for anything."""
        self.worker.turn(messages)
        return self.says()

    def waits(self) -> list[object]:
        """What it says next, when what it waits for has come."""
        while not self.wire.said:
            self.worker.turn(self.wire.receive(self.worker.timeout_ms()))
        return self.says()

    def says(self) -> list[object]:
        said: list[object] = list(self.wire.said)
        self.wire.said.clear()
        return said


def apart(room: int) -> Plan:
    """Its first stage worker is on another node than its second. room: bytes of a pool."""
    made = compile_graph(fg.load_graph(str(CHOSEN)), TWO_CORES, {"host.replicas": 2})
    host = replace(made.group("host"), places=(Place(node="here"), Place(node="there")))
    gang = replace(made.group("player.gang"), places=(Place(node="here"),))
    groups = tuple({"host": host, "player.gang": gang}.get(g.name, g) for g in made.groups)
    return replace(made, groups=groups, pool_bytes=room)


def spec(name: str, index: int, folder: Path, **more: object) -> WorkerSpec:
    group = name.rpartition("-")[0]
    plain = {"name": name, "group": group, "index": index, "plan": "", "endpoint": "", "log": ""}
    plain |= {"scratch": str(folder), "run_dir": str(folder), "steps": 2, "exact": False}
    return WorkerSpec.from_plain({**plain, "record": False, "pool_bytes": 1 << 20, **more})


def run(item: int, task: str, inputs: dict[str, PlainHandle], *outputs: str) -> Run:
    return Run(
        item=item,
        task=task,
        variant=0,
        step=0,
        part=0,
        version=0,
        units=(item,),
        samples=((item,),),
        inputs={stream: ((handle,),) for stream, handle in inputs.items()},
        outputs=outputs,
    )


def answers(issued: object) -> Answers:
    """One token for each call."""
    assert isinstance(issued, Issued)

    def one(id: int) -> Completion:
        token, start = np.array([3]), np.zeros(1)
        return Completion(
            id=id,
            tokens=token,
            logprobs=start.astype(np.float32),
            versions=start.astype(np.int32),
        )

    return Answers(
        completions=tuple(completion_to_plain(one(call[0]), call[0]) for call in issued.calls)
    )
