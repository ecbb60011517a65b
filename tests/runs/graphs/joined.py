"""Lines with two fields from beside, joined one after the other, of which the loss reads both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Line:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


@dataclass(frozen=True, slots=True)
class Weight:
    weight: float


@dataclass(frozen=True, slots=True)
class Places:
    place: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def build(shown: bool = False) -> fg.Graph:
    """shown: the joined lines go to a sink too, so that a stage worker joins them."""
    g = fg.Graph("joined", steps=2)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", counting)
    joined = lines.join(lines.map(weighed)).join(lines.map(placed))
    joined.train(lm, loss=weighted, batch=8, optimizer=fg.adamw(1e-3))
    if shown:
        joined.sink(look)
    return g


def counting() -> Sequence[Line]:
    return [
        Line([(i + k) % 32 for k in range(4 + i % 5)], np.ones(4 + i % 5, np.float32))
        for i in range(100)
    ]


def weighed(line: Line) -> Weight:
    return Weight(float(line.tokens[0]))


def placed(line: Line) -> Places:
    return Places(np.arange(len(line.tokens), dtype=np.float32))


def look(record: object) -> None: ...


def weighted(outputs: Any, fields: Mapping[str, "Tensor"]) -> tuple["Tensor", dict[str, "Tensor"]]:
    mask = fields["loss_mask"]
    told = {name: (fields[name] * mask).sum() for name in ("weight", "place")}
    return -(outputs.logprobs * mask * fields["weight"]).sum(), told
