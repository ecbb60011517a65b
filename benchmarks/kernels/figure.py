"""One measured figure, and how it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

BEST_OF = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """How long one call takes beside another that does the same or moves the same bytes.

    nbytes: what the call must move, reads and writes, 0 where it is not a matter of bytes.
    seconds, beside_seconds: of the call and of `beside`. within: the stated limit of their ratio.
    """

    name: str
    nbytes: int
    seconds: float
    beside: str
    beside_seconds: float
    within: float | None = None

    def line(self) -> str:
        """A row of the table."""
        ratio = self.seconds / self.beside_seconds
        limit = "" if self.within is None else f"{self.within:g}"
        verdict = "" if self.within is None else ("ok" if ratio <= self.within else "MISSED")
        rate = f"{self.nbytes / self.seconds / 1e9:.1f}" if self.nbytes else ""
        return (
            f"| {self.name} | {self.seconds * 1e3:.3f} | {rate} | {self.beside} "
            f"| {self.beside_seconds * 1e3:.3f} | {ratio:.2f} | {limit} | {verdict} |"
        )


HEADER = (
    "| call | ms | GB/s | beside | ms | ratio | limit | |\n|---|---:|---:|---|---:|---:|---:|---|"
)


def seconds(call: Callable[[], object], device: torch.device) -> float:
    """The median of Triton's `do_bench` on a device, the best of 7 on the CPU.

    The CPU's is processor time of all threads, which other programs disturb less than the clock.
    """
    if device.type != "cpu":
        from triton.testing import do_bench

        median: float = do_bench(call, return_mode="median")
        return median / 1e3
    best = float("inf")
    for _ in range(BEST_OF):
        begin = time.process_time()
        result = call()
        best = min(best, time.process_time() - begin)
        del result
    return best


def copy_seconds(nbytes: int, device: torch.device) -> float:
    """A copy that reads and writes `nbytes` in all, within memory that is there already."""
    source = torch.zeros(max(1, nbytes // 2), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return seconds(lambda: target.copy_(source), device)
