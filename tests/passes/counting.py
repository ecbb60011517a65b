"""A user's graph that simplify can do something with: equal maps, a filter behind a map."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Line:
    start: int
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def build() -> fg.Graph:
    g = fg.Graph("counting", steps=2)
    lines = g.source("lines", counting)
    for name in ("one", "other"):
        module = g.module(name, fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
        shifted = lines.map(shift, name=f"shift-{name}", by=1)
        kept = shifted.filter(starts_odd, name=f"odd-{name}") if name == "one" else shifted
        kept.train(
            module,
            loss=fg.token_cross_entropy(),
            batch=4,
            micro_batch=fg.tokens(32),
            optimizer=fg.adamw(1e-3),
        )
    return g


def counting() -> Sequence[Line]:
    """Line i counts from i on."""
    return [
        Line(i, [(i + k) % 32 for k in range(3 + i % 4)], np.ones(3 + i % 4, np.float32))
        for i in range(100)
    ]


def shift(line: Line, *, by: int) -> Line:
    return Line(line.start, [(token + by) % 32 for token in line.tokens], line.loss_mask)


def starts_odd(line: Line) -> bool:
    return line.start % 2 == 1
