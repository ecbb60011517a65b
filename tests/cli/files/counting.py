"""A small model learns to count: the graph that the command line's tests run and break."""

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


LM = fg.model(decoder, vocab=32, layers=1, width=16, heads=2)


def build(steps: int = 3, batch: int = 8, fails_at: int = -1, pause_s: float = 0.0) -> fg.Graph:
    g = fg.Graph("counting", steps=steps)
    lm = g.module("lm", LM)
    checked = g.source("lines", lines).map(check, fails_at=fails_at, pause_s=pause_s)
    checked.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=batch,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )
    return g


def lines(*, length: int = 1000) -> Sequence[Line]:
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
