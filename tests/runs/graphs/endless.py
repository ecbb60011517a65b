"""Lines that are read one after another, from a source whose position can be stored."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


class Lines:
    """Line i is known only when the lines before it were read: it counts on from their end."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._position = 0
        self._last = 0

    def __iter__(self) -> Iterator[Line]:
        while self._position < self._length:
            tokens = [(self._last + k) % 32 for k in range(4 + self._position % 5)]
            self._position += 1
            self._last = tokens[-1]
            yield Line(tokens, np.ones(len(tokens), np.float32))
        self._position = self._last = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position, "last": self._last}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position, self._last = state["position"], state["last"]


def build(
    length: int = 1000, at_end: str = "loop", steps: int = 3, odd_only: bool = False
) -> fg.Graph:
    g = fg.Graph("endless", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", reading, length=length, at_end=at_end)  # type: ignore[arg-type]
    if odd_only:
        lines = lines.filter(starts_odd, name="odd")
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=8,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )
    return g


def reading(*, length: int) -> Iterable[Line]:
    return Lines(length)


def starts_odd(line: Line) -> bool:
    return line.tokens[0] % 2 == 1
