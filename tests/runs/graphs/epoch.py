"""One pass over a few lines in a shuffled order: a filter, rows of a fixed size, a small model.

What passes the filter beyond a step's batch waits for the next step; a line longer than a row is
dropped; what is left at the end is no whole step and is left out. filtered: else all lines pass.
"""

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


def build(filtered: bool = True, length: int = 17, batch: int = 2, row: int = 8) -> fg.Graph:
    g = fg.Graph("epoch", steps=1000)
    lm = g.module("lm", fg.model(decoder, vocab=64, layers=1, width=16, heads=2))
    lines = g.source("lines", counting, length=length, at_end="drop", shuffle=True)
    if filtered:
        lines = lines.filter(not_third, name="most")
    lines.pack(tokens=row, over_long="drop").train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=batch,
        micro_batch=fg.tokens(2 * row),
        optimizer=fg.adamw(1e-3),
    )
    return g


def counting(*, length: int) -> Sequence[Line]:
    """Line i counts from i on, 3 to 9 tokens."""
    return [
        Line([(i + k) % 64 for k in range(3 + i % 7)], np.ones(3 + i % 7, np.float32))
        for i in range(length)
    ]


def not_third(line: Line) -> bool:
    return line.tokens[0] % 3 != 0
