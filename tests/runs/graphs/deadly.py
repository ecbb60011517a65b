"""A small model learns to count from lines, one of which kills the process that reads it."""

import os
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


def build(dies_at: int = -1, steps: int = 4) -> fg.Graph:
    g = fg.Graph("deadly", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", counting).map(check, name="check", dies_at=dies_at)
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=8,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )
    return g


def counting() -> Sequence[Line]:
    """Line i counts from i on: 3, 4, 5, ..., of varying length."""
    return [
        Line([(i + k) % 32 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))
        for i in range(100)
    ]


def check(line: Line, *, dies_at: int) -> Line:
    if line.tokens[0] == dies_at:
        os._exit(7)
    return line
