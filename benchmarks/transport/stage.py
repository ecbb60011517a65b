"""A real host task and its worker's store: `python -m benchmarks.transport.stage [--rounds 40]`.

Samples with images go through a source and an `unnest` into the pool, for an encoder and a trainer.
Beside it the same with every column joined first, and with all columns sent.
"""

import asyncio
import time
from dataclasses import dataclass, replace

import click
import numpy as np

from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import FunctionRef, Graph, Stage, Stream
from flowgraph.ir.plan import Plan, Schedule, Task
from flowgraph.ir.types import ITEM, SAMPLE, Field, Ragged, RecordType
from flowgraph.runtime.handle import Handle
from flowgraph.runtime.item import Item
from flowgraph.runtime.loose import joined
from flowgraph.runtime.messages import Free
from flowgraph.runtime.stages.calls import CallPort
from flowgraph.runtime.stages.host import HostTask
from flowgraph.runtime.stages.pump import TurnLoop
from flowgraph.runtime.worker.output import Store

SAMPLES, WIDTH = 64, 768
IMAGES, PATCHES = Ragged("images"), Ragged("patches")
TOKENS = Field(name="tokens", dtype="int64", dims=(Ragged("tokens"),))
ROW = RecordType(
    fields=(SAMPLE, TOKENS, Field(name="pixels", dtype="float32", dims=(IMAGES, PATCHES, WIDTH)))
)
IMAGE = RecordType(
    fields=(SAMPLE, ITEM, Field(name="pixels", dtype="float32", dims=(PATCHES, WIDTH))),
    key=("sample", "item"),
)
FEATURE = RecordType(
    fields=(SAMPLE, ITEM, Field(name="features", dtype="float32", dims=(PATCHES, 8))),
    key=("sample", "item"),
)
HOST = Task(
    name="task", kind="host", stages=("rows", "images"), group="host", outputs=("rows", "images")
)
READERS = (
    Task(name="e", kind="apply", stages=("encode",), group="vit.gang", inputs=("images",),
         outputs=("encode",)),
    Task(name="t", kind="train", stages=("join", "learn"), group="lm.gang",
         inputs=("rows", "encode")),
)  # fmt: skip


@dataclass(slots=True)
class Pictures:
    """Fresh arrays at each reading, as decoders give them. spent: seconds of processor in here."""

    spent: float = 0.0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, at: int) -> dict[str, object]:
        began = time.process_time()
        rng = np.random.default_rng(at)
        sizes = rng.integers(8, 32, rng.integers(0, 4))
        pixels = [np.full((size, WIDTH), at, np.float32) for size in sizes]
        record = {"tokens": np.zeros(sizes.sum() + 20, np.int64), "pixels": pixels}
        self.spent += time.process_time() - began
        return record


SOURCE = Pictures()


def pictures() -> Pictures:
    """The source's function."""
    return SOURCE


def plan_of(readers: tuple[Task, ...]) -> Plan:
    """readers: none, and every column is sent."""
    made = FunctionRef(module="benchmarks.transport.stage", qualname="pictures", params={})
    encode = Stage(name="encode", op="apply", inputs=("images",), outputs=("encode",))
    stages = (
        Stage(name="rows", op="source", outputs=("rows",), function=made),
        Stage(
            name="images",
            op="unnest",
            inputs=("rows",),
            outputs=("images",),
            attributes={"dim": "images"},
        ),
        replace(encode, modules=("vit",), attributes={"inputs": ("pixels",)}),
        Stage(name="join", op="join", inputs=("rows", "encode"), outputs=("join",)),
        Stage(name="learn", op="train", inputs=("join",), modules=("lm",)),
    )
    types = {"rows": ROW, "images": IMAGE, "encode": FEATURE, "join": ROW}
    streams = tuple(Stream(name=name, producer=name, type=type) for name, type in types.items())
    graph = Graph(name="bench", stages=stages, streams=streams)
    return Plan(
        graph=graph,
        cluster=Cluster(name="none", kinds=(), nodes=()),
        schedule=Schedule(batch=1, chunk=1),
        tasks=(HOST, *readers),
    )


class Turn:
    """One item through the task and into the pool: seconds of processor, and its bytes there."""

    def __init__(self, plan: Plan, *, join_first: bool) -> None:
        self._host = HostTask(plan, HOST, exact=False, seed=0)
        self._store = Store("bench", 1 << 27)
        self._join_first = join_first

    def __call__(self, loop: TurnLoop) -> tuple[float, int]:
        item = Item(id=1, task="task", units=(0,), samples=(tuple(range(SAMPLES)),))
        before, began = SOURCE.spent, time.process_time()
        made = loop.run_until_complete(self._host.run(item, CallPort(loop))).made
        handles = [
            self._store.write(joined(batch) if self._join_first else batch, stream, _no_room)
            for stream in HOST.outputs
            for batch in made[stream]
        ]
        seconds = time.process_time() - began - (SOURCE.spent - before)
        blocks = [Handle.from_plain(handle) for handle in handles]
        self._store.free(Free(blocks=tuple((b.offset, b.generation) for b in blocks)))
        return seconds, sum(block.nbytes for block in blocks)


def _no_room(stream: str, nbytes: int) -> None:
    raise AssertionError(f"no room for {nbytes} bytes of {stream}")


@click.command()
@click.option("--rounds", default=40)
def main(rounds: int) -> None:
    """Print processor time and pool bytes an item, the best of the rounds, in turns."""
    turns = {
        "what is read, once": Turn(plan_of(READERS), join_first=False),
        "what is read, joined first": Turn(plan_of(READERS), join_first=True),
        "all columns, joined first": Turn(plan_of(()), join_first=True),
    }
    loop = TurnLoop()
    asyncio.set_event_loop(loop)
    taken = {name: [turn(loop) for _ in range(2)] for name, turn in turns.items()}
    for _ in range(rounds):
        for name, turn in turns.items():
            taken[name].append(turn(loop))
    print("| an item of 64 samples with images | processor | in the pool |\n|---|---|---|")
    for name, found in taken.items():
        print(f"| {name} | {min(found)[0] * 1e3:.2f} ms | {found[0][1] / 1e6:.1f} MB |")
    loop.close()


if __name__ == "__main__":
    main()
