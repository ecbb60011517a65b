"""Memory under a producer ten times as fast as its consumer, and what a full segment holds."""

import os
from dataclasses import dataclass

import msgpack
import numpy as np

from benchmarks.transport.rig import first_words, side
from flowgraph.runtime.arena import Arena
from flowgraph.runtime.pool import Handle, Reader

MIB = 1 << 20
ITEM = 25 * MIB
BUDGET = 110 * MIB
ITEMS = 40


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """peak: bytes of the segment and of the producer's own memory, above what it had at first.

    waits: how often it found no room. lost: items that did not arrive, or out of order.
    """

    peak: int
    waits: int
    lost: int


def measure() -> MemoryFigures:
    """Ten tries to put for each item that is taken. The other process is `side.produce`."""
    reader = Reader()
    waiting: list[Handle] = []
    seen: list[int] = []
    peak = waits = sent = 0
    with side("produce", str(ITEMS), str(ITEM), str(BUDGET)) as child:
        first_words(child)
        base = _own_bytes(child.pid)
        while len(seen) < ITEMS:
            for _ in range(10):
                if sent == ITEMS:
                    break
                (word,) = first_words(child)
                if word == "full":
                    waits += 1
                    break
                sent += 1
                waiting.append(Handle.from_plain(msgpack.unpackb(bytes.fromhex(word))))
                segment = os.stat(f"/proc/{child.pid}/fd/{waiting[-1].fd}").st_blocks * 512
                peak = max(peak, segment + _own_bytes(child.pid) - base)
            oldest = waiting.pop(0)
            seen.append(int(reader.open(oldest)["x"].values[0, -1]))
            assert child.stdin is not None
            child.stdin.write(f"{oldest.offset} {oldest.generation}\n")
            child.stdin.flush()
    lost = sum(a != b for a, b in zip(seen, range(ITEMS), strict=True))
    return MemoryFigures(peak, waits, lost)


def _own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def filled(classes: bool, order: str, blocks: int = 10_000) -> float:
    """Mean share of a segment that blocks have asked for when one first finds no room.

    classes: sizes are rounded up to eighths of a power of two. order: in which blocks are freed,
    `oldest first`, `nearly` so, or at `random`. Sizes are log-normal, 160 KB at the median.
    """
    rng = np.random.default_rng(0)
    arena = Arena(64 * MIB)
    live: list[tuple[int, int]] = []
    shares: list[float] = []
    asked = 0
    for _ in range(blocks):
        nbytes = int(min(rng.lognormal(12, 1.2), 8 * MIB))
        take = _class_of(nbytes) if classes else nbytes
        while (start := arena.take(take)) is None:
            shares.append(asked / arena.size)
            last = len(live) - 1
            ages = {
                "oldest first": 0,
                "nearly": min(int(rng.geometric(0.1)) - 1, last),
                "random": int(rng.integers(len(live))),
            }
            old, size = live.pop(ages[order])
            arena.give(old)
            asked -= size
        live.append((start, nbytes))
        asked += nbytes
    return float(np.mean(shares))


def _class_of(nbytes: int) -> int:
    step = 1 << max(6, (nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step
