"""What this machine can do at most, to hold figures against: printed beside them."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

MIB = 1 << 20
COPIED = 64 * MIB
"""Bytes of each buffer: larger than caches."""

SIDE = 1024
"""Of the matrices that are multiplied."""


def limits(rounds: int = 7) -> str:
    """Cores, load, bytes a second of one copying thread, float32 matrix products of one thread."""
    there, given = np.zeros(COPIED, np.uint8), np.ones(COPIED, np.uint8)
    copies = COPIED / _best(rounds, lambda: np.copyto(there, given)) / 1e9
    first, second = (np.ones((SIDE, SIDE), np.float32) for _ in range(2))
    products = 2 * SIDE**3 / _best(rounds, lambda: first @ second) / 1e9
    return (
        f"# {os.cpu_count()} cores, {_model()}, load {os.getloadavg()[0]:.1f}; "
        f"copies {copies:.1f} GB/s, matrix products {products:.0f} GFLOP/s (best of {rounds})"
    )


def _best(rounds: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
