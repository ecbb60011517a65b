"""Processes and rounds of the measurements."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]

Turn = Callable[[], object]


@contextmanager
def side(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The other process, ended with the measurement."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.transport.side", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def first_words(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()


def in_turns(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Seconds of each, taken in turns so that other load hits all alike; two rounds are warm-up."""
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 2):
        for name, turn in turns.items():
            began = time.perf_counter()
            turn()
            if number >= 2:
                taken[name].append(time.perf_counter() - began)
    return taken


def ratio(taken: Mapping[str, list[float]], ours: str, theirs: str) -> float:
    """Median over rounds of their time by ours, neighbours in time compared with each other."""
    return median(b / a for a, b in zip(taken[ours], taken[theirs], strict=True))


def load() -> str:
    """The machine's load now: figures taken under load are shape, not measure."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
