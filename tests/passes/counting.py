"""Users' graphs that simplify can do something with, and some that it must leave alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder, vit

IMAGE = 3
PLACE = fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))


@dataclass(frozen=True, slots=True)
class Line:
    start: int
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


@dataclass(frozen=True, slots=True)
class Shifted:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]
    last: int


class Start(NamedTuple):
    start: int


@dataclass(frozen=True, slots=True)
class Picture:
    start: int
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]
    patches: Annotated[
        list[np.ndarray], fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), 16)
    ]
    rows: Annotated[list[np.ndarray], PLACE]
    cols: Annotated[list[np.ndarray], PLACE]


def filtered() -> fg.Graph:
    """Filters behind maps whose work they need not wait for, one that must wait, and a sink."""
    g = fg.Graph("filtered", steps=2)
    shifted = g.source("lines", counting).map(shift, keeps=["start"], by=1)
    kept = shifted.map(shift_on, keeps=["start", "last"], name="on").filter(starts_odd, expect=0.5)
    _trained(g, kept.filter(ends_early, expect=0.9), "one")
    return g


def twins() -> fg.Graph:
    """Two chains alike, a map and a filter each."""
    g = fg.Graph("twins", steps=2)
    lines = g.source("lines", counting)
    for name in ("one", "other"):
        shifted = lines.map(shift, name=f"shift-{name}", keeps=["start"], by=1)
        _trained(g, shifted.filter(starts_odd, name=f"odd-{name}", expect=0.5), name)
    return g


def pictures() -> fg.Graph:
    """A frozen tower read by two language models, which each take the images apart."""
    g = fg.Graph("pictures", steps=2)
    tower = g.module("vit", fg.model(vit, layers=1, width=16, heads=2), trainable=False)
    samples = g.source("pictures", drawn, expect={"tokens": 6, "patches": 4})
    for name in ("one", "other"):
        features = samples.unnest("images", name=f"images-{name}").apply(tower, name=f"see-{name}")
        joined = samples.join(features, placeholder=IMAGE, name=f"join-{name}")
        _trained(g, joined.pack(tokens=64, name=f"pack-{name}"), name, feature_width=16)
    return g


def games() -> fg.Graph:
    """An agent that learns from play, behind a filter that a map need not come before."""
    g = fg.Graph("games", steps=2)
    player = g.agent("one", fg.model(decoder, vocab=32, layers=1, width=16, heads=2, max_length=32))
    lines = g.source("lines", counting).map(shift, keeps=["start"], by=1).filter(starts_odd)
    rows = lines.episodes(play, agents=[player], trajectories=2).rows(player)
    rows.group(by="task").train(
        player.module, loss=fg.grpo(), batch=4, optimizer=fg.adam(1e-3), micro_batch=fg.tokens(32)
    )
    return g


def _trained(g: fg.Graph, stream: fg.Stream, name: str, **more: int) -> None:
    stream.train(
        g.module(name, fg.model(decoder, vocab=32, layers=1, width=16, heads=2, **more)),
        loss=fg.token_cross_entropy(),
        batch=4,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )


def counting() -> Sequence[Line]:
    """Line i counts from i on."""
    return [
        Line(i, [(i + k) % 32 for k in range(3 + i % 4)], np.ones(3 + i % 4, np.float32))
        for i in range(100)
    ]


def drawn() -> Sequence[Picture]:
    """Picture i has i % 3 images of four patches, which are one feature each."""
    place = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    return [
        Picture(
            i,
            [IMAGE] * (i % 3) + [4 + i % 8, 5 + i % 8],
            np.ones(i % 3 + 2, np.float32),
            [np.full((4, 16), 0.1 * (i + k), np.float32) for k in range(i % 3)],
            [place[0]] * (i % 3),
            [place[1]] * (i % 3),
        )
        for i in range(100)
    ]


def shift(line: Line, *, by: int) -> Shifted:
    tokens = [(token + by) % 32 for token in line.tokens]
    return Shifted(tokens, line.loss_mask, tokens[-1])


@dataclass(frozen=True, slots=True)
class Words:
    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


def shift_on(words: Words) -> Words:
    return Words([(token + 1) % 32 for token in words.tokens], words.loss_mask)


def starts_odd(line: Start) -> bool:
    return line.start % 2 == 1


class Last(NamedTuple):
    last: int


def ends_early(line: Last) -> bool:
    return line.last < 28


async def play(words: Words, one: fg.Agent) -> fg.Rewards:
    said = await one.generate(words.tokens, max_tokens=3)
    return fg.Rewards({"one": float(said.tokens[0] % 2)})
