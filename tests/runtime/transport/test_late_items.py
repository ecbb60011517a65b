"""A stage worker begins an item when what it reads of another node finds room, and not before."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flowgraph as fg
from flowgraph.ir.plan import Place, Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.calls import completion_to_plain
from flowgraph.runtime.engine.interface import Completion
from flowgraph.runtime.messages import Answers, Done, Issued, PlainHandle, Run
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.worker.spec import WorkerSpec
from flowgraph.runtime.worker.stage import StageWorker
from tests.runs.running import TWO_CORES
from tests.runtime.orchestrator.live import Wire
from tests.runtime.transport.rig import Serving, serving

CHOSEN = Path(__file__).parent / "graphs" / "chosen.py"
ROOM = 2 << 10
"""Bytes for blocks of another node: one of the graph's fits, two do not."""


@pytest.fixture
def plan() -> Plan:
    """Its first stage worker is on another node than its second."""
    made = compile_graph(fg.load_graph(str(CHOSEN)), TWO_CORES, {"host.replicas": 2})
    host = replace(made.group("host"), places=(Place(node="here"), Place(node="there")))
    groups = tuple(host if group.name == "host" else group for group in made.groups)
    return replace(made, groups=groups, pool_bytes=ROOM)


@pytest.fixture
def there() -> Iterator[Serving]:
    with serving([porter_of("there"), "host-0"]) as found:
        yield found


class Worker:
    """A stage worker of this process, and what it says."""

    def __init__(self, plan: Plan, spec: WorkerSpec) -> None:
        self.wire = Wire(spec.name, 0, lambda _: None)
        self.worker = StageWorker(spec, plan, self.wire)

    def told(self, *messages: Run | Answers) -> list[object]:
        self.worker.turn(messages)
        said: list[object] = list(self.wire.said)
        self.wire.said.clear()
        return said


def spec(name: str, index: int, folder: Path, **more: object) -> WorkerSpec:
    plain = {"name": name, "group": "host", "index": index, "plan": "", "endpoint": "", "log": ""}
    plain |= {"scratch": str(folder), "run_dir": str(folder), "steps": 2, "exact": False}
    return WorkerSpec.from_plain({**plain, "record": False, "pool_bytes": 1 << 20, **more})


def run(item: int, task: str, inputs: dict[str, PlainHandle], output: str) -> Run:
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
        outputs=(output,),
    )


def answers(issued: Issued) -> Answers:
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


def test_an_item_waits_for_room_and_then_begins_by_itself(
    plan: Plan, there: Serving, tmp_path: Path
) -> None:
    writer = Worker(plan, spec("host-1", 1, tmp_path))
    made = writer.told(*(run(item, "tasks", {}, "chosen") for item in range(3)))
    blocks = [done.outputs["chosen"][0] for done in made if isinstance(done, Done)]
    assert [ROOM // 2 < block[4] < ROOM for block in blocks] == [True] * 3
    keys = str(there.rings["host-0"].write(tmp_path))
    porters = {"there": there.server.endpoint}
    here = spec("host-0", 0, tmp_path, node="here", porters=porters, block_keys=keys)
    reader = Worker(plan, here)
    said = reader.told(
        *(
            run(n, "play", {"chosen": block}, "train-player.credit")
            for n, block in enumerate(blocks)
        )
    )
    for item in range(3):
        (issued,) = said
        assert isinstance(issued, Issued)
        assert len(issued.calls) == 2  # one item's trajectories, and no other's
        done, *said = reader.told(answers(issued))
        assert isinstance(done, Done)
        assert done.item == item
    assert said == []
    for worker in (writer, reader):
        worker.worker.abandon()
