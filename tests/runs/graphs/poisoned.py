"""A small language model whose lines are played, filtered, rewarded; any of it can be poisoned."""

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
) -> fg.Graph:
    """where: `source`, `filter` or `map`. bad: first tokens that are poison, `3,17`.

    mended: a file; the first attempt at each poison makes it, and later ones succeed.
    """
    g = fg.Graph("poisoned", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=128, layers=1, width=16, heads=2))
    poison = {part: bad if part == where else "" for part in ("source", "filter", "map")}
    lines = g.source(
        "lines",
        counting,
        length=length,
        bad=poison["source"],
        at_end=at_end,  # type: ignore[arg-type]
        shuffle=shuffle,
    )
    if where == "filter":
        lines = lines.filter(not_third, name="most", bad=poison["filter"])
    lines = lines.map(check, name="check", bad=poison["map"], mended=mended)
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

    def __init__(self, length: int, bad: str) -> None:
        self._length, self._bad = length, bad

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Line:  # type: ignore[override]
        raise_if(i % 128, self._bad)
        return Line([(i + k) % 128 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))


def counting(*, length: int, bad: str) -> Sequence[Line]:
    return Lines(length, bad)


def not_third(line: Line, *, bad: str) -> bool:
    raise_if(line.tokens[0], bad)
    return line.tokens[0] % 3 != 0


def check(line: Line, *, bad: str, mended: str) -> Line:
    if mended and str(line.tokens[0]) in bad.split(","):
        seen = Path(f"{mended}.{line.tokens[0]}")
        if seen.exists():
            return line
        seen.touch()
    raise_if(line.tokens[0], bad)
    return line


def raise_if(first: int, bad: str) -> None:
    if str(first) in bad.split(","):
        raise ValueError(f"poison: {first}")
