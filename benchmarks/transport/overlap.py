"""Items whose blocks lie on another node, with some work an item: fetched before it is worked on,
or while the one before it is.

Two nodes on loopback: the porter is another process, the reader is this one, with the classes that
a worker has. The machine's own limit stands beside it: the slower of fetching and working alone.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select

import msgpack
import torch

from benchmarks.transport.rig import first_words, in_turns, side
from flowgraph.runtime.messages import PlainHandle, Run
from flowgraph.runtime.pool import Handle
from flowgraph.runtime.transport.keys import Keyring, new_keyrings
from flowgraph.runtime.transport.porter import porter_of
from flowgraph.runtime.transport.remote import Nodes, Remote
from flowgraph.runtime.worker.arrivals import Arrivals, Handed

ITEMS = 12
NBYTES = 8 << 20
BUDGET = 4 * NBYTES
SIDE = 640
"""Of the matrices that are multiplied: about what a fetch in the clear takes, a few times over."""


@dataclass(slots=True)
class Reader:
    """A worker's end: `ahead` orders are known beyond the one that is worked on."""

    remote: Remote
    blocks: Sequence[PlainHandle]
    work: torch.Tensor

    def run(self, ahead: int, times: int) -> None:
        """All items. times: multiplications an item; none: only the fetching."""
        arrivals = Arrivals(self.remote)
        handed: list[Handed] = []
        for number in range(len(self.blocks)):
            while len(handed) <= min(number + ahead, len(self.blocks) - 1):
                handed.append(arrivals.hand(_order(len(handed), self.blocks[len(handed)])))
            arrivals.look()
            while not arrivals.is_here(handed[number]):
                select([self.remote], [], [])
                arrivals.look()
            batch = self.remote.open(Handle.from_plain(self.blocks[number]))
            arrivals.begun(handed[number])
            assert int(batch["x"].values[0, -1]) == number
            for _ in range(times):
                torch.mm(self.work, self.work)
            del batch
            arrivals.ended(handed[number])


def measure(rounds: int, trusted: bool) -> Mapping[str, list[float]]:
    """Seconds for all items, in turns: `apart`, `overlapped`, `fetching` and `working` alone."""
    with _reader(trusted) as reader:
        times = _as_long_as_a_fetch(reader)

        def working() -> None:
            for _ in range(times * ITEMS):
                torch.mm(reader.work, reader.work)

        return in_turns(
            {
                "apart": lambda: reader.run(0, times),
                "overlapped": lambda: reader.run(1, times),
                "fetching": lambda: reader.run(1, 0),
                "working": working,
            },
            rounds,
        )


def _as_long_as_a_fetch(reader: Reader) -> int:
    """Multiplications that take about the time of an item's fetch: where overlap gains most."""
    reader.run(0, 0)
    began = time.perf_counter()
    reader.run(0, 0)
    fetch_s = (time.perf_counter() - began) / ITEMS
    began = time.perf_counter()
    for _ in range(10):
        torch.mm(reader.work, reader.work)
    return max(1, round(10 * fetch_s / (time.perf_counter() - began)))


@contextmanager
def _reader(trusted: bool) -> Iterator[Reader]:
    torch.set_num_threads(1)
    server = porter_of("there")
    rings: dict[str, Keyring] = new_keyrings([server, "host-0"])
    with tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder:
        keys = str(rings[server].write(Path(folder)))
        way = "trusted" if trusted else "curve"
        with side("porter", str(ITEMS), str(NBYTES), keys, way) as child:
            (endpoint,) = first_words(child)
            nodes = Nodes(of={"host-1": "there"}, porters={"there": endpoint})
            blocks = [
                msgpack.unpackb(bytes.fromhex(packed), use_list=False)
                for packed in first_words(child)
            ]
            remote = Remote("here", nodes, rings["host-0"], BUDGET)
            yield Reader(remote, blocks, torch.rand(SIDE, SIDE))
            remote.close()


def _order(number: int, block: PlainHandle) -> Run:
    return Run(
        item=number,
        task="train",
        variant=0,
        step=0,
        part=0,
        version=0,
        units=(number,),
        samples=((number,),),
        inputs={"x": ((block,),)},
        outputs=(),
    )
