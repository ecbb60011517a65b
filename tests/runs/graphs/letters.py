"""A small language model learns to count; its stages can be made to fail."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def build(
    fails_at: int = -1,
    odd_only: bool = False,
    updates: int = 1,
    steps: int = 3,
    length: int = 1000,
    at_end: str = "loop",
    pause_s: float = 0.0,
) -> fg.Graph:
    g = fg.Graph("letters", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", counting, length=length, at_end=at_end)  # type: ignore[arg-type]
    lines = lines.map(check, name="check", fails_at=fails_at, pause_s=pause_s)
    if odd_only:
        lines = lines.filter(starts_odd, name="odd")
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=8,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
        updates=updates,
    )
    return g


def counting(*, length: int) -> Sequence[Line]:
    """Line i counts from i on: 3, 4, 5, ..., of varying length."""
    return [
        Line([(i + k) % 32 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))
        for i in range(length)
    ]


def check(line: Line, *, fails_at: int, pause_s: float) -> Line:
    if line.tokens[0] == fails_at:
        raise ValueError(f"cannot read a line that starts with {fails_at}")
    if pause_s:
        import time

        time.sleep(pause_s)
    return line


def starts_odd(line: Line) -> bool:
    return line.tokens[0] % 2 == 1
