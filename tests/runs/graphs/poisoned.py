"""A small language model whose lines are read, filtered, checked; any of it can be poisoned."""

import ctypes
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def build(
    where: str = "map",
    bad: str = "",
    steps: int = 4,
    length: int = 1000,
    at_end: str = "loop",
    shuffle: bool = False,
    mended: str = "",
    how: str = "raises",
) -> fg.Graph:
    """where: `source`, `filter` or `map`. bad: first tokens that are poison, `3,17`.

    mended: a file; the first attempt at each poison makes it, and later ones succeed.
    how: what poison does to the process that takes it: `raises`, `crashes`, `exits`, `killed`
    (what the kernel does for memory), `hangs`.
    """
    g = fg.Graph("poisoned", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=128, layers=1, width=16, heads=2))
    poison = {part: bad if part == where else "" for part in ("source", "filter", "map")}
    lines = g.source(
        "lines",
        counting,
        length=length,
        bad=poison["source"],
        how=how,
        at_end=at_end,  # type: ignore[arg-type]
        shuffle=shuffle,
    )
    if where == "filter":
        lines = lines.filter(not_third, name="most", bad=poison["filter"], how=how)
    lines = lines.map(check, name="check", bad=poison["map"], mended=mended, how=how)
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=8,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )
    return g


class Lines(Sequence[Line]):
    """Line i counts from i on; one that is poison cannot be read."""

    def __init__(self, length: int, bad: str, how: str) -> None:
        self._length, self._bad, self._how = length, bad, how

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Line:  # type: ignore[override]
        harm(i % 128, self._bad, self._how)
        return Line([(i + k) % 128 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))


def counting(*, length: int, bad: str, how: str) -> Sequence[Line]:
    return Lines(length, bad, how)


def not_third(line: Line, *, bad: str, how: str) -> bool:
    harm(line.tokens[0], bad, how)
    return line.tokens[0] % 3 != 0


def check(line: Line, *, bad: str, mended: str, how: str) -> Line:
    if mended and str(line.tokens[0]) in bad.split(","):
        seen = Path(f"{mended}.{line.tokens[0]}")
        if seen.exists():
            return line
        seen.touch()
    harm(line.tokens[0], bad, how)
    return line


def harm(first: int, bad: str, how: str) -> None:
    if str(first) not in bad.split(","):
        return
    match how:
        case "crashes":
            ctypes.string_at(0)
        case "exits":
            os._exit(7)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            threading.Event().wait()
        case _:
            raise ValueError(f"poison: {first}")
