"""Encoder and backbone both trained, apart in place and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

import flowgraph as fg

if TYPE_CHECKING:
    from torch import Tensor

IMAGE = 3
SQUARE = [np.zeros(4, np.int64)]


@dataclass(frozen=True)
class Question:
    tokens: list[int]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]
    patches: Annotated[
        list[np.ndarray], fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), 16)
    ]
    rows: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]
    cols: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]
    scales: Annotated[list[float], fg.ragged("images")]
    kind: Literal["digit", "sum"] = "digit"


def questions(*, split: str, seed: int = 0) -> Sequence[Question]:
    return [
        Question(
            [IMAGE, 5, seed], [0, 0, 1], [np.zeros((4, 16), np.float32)], SQUARE, SQUARE, [1.0]
        )
        for _ in range(8 if split == "test" else 64)
    ]


def exact_match(outputs: object, fields: Mapping[str, "Tensor"]) -> dict[str, object]:
    return {"exact_match": (fields["loss_mask"].sum(), fields["loss_mask"].sum())}


def build(batch: int = 64, context: int = 256) -> fg.Graph:
    g = fg.Graph("pictures", steps=400)
    tower = fg.model(fg.models.vit, layers=2, width=64, heads=4)
    vit = g.module("vit", tower)
    lm = g.module(
        "lm",
        fg.model(fg.models.decoder, vocab=32, layers=3, width=96, heads=4, feature_width=64),
    )

    samples = g.source("samples", questions, split="train", seed=0)
    features = samples.unnest("images", expect=1.5).apply(vit)
    packs = samples.join(features, placeholder=IMAGE).pack(tokens=context)
    packs.train(
        lm,
        vit,
        loss=fg.token_cross_entropy(),
        batch=batch,
        optimizer=fg.adamw(1e-3),
        schedule=fg.linear_decay(last=0.4),
    )

    g.evaluate("held-out", exact_match, source=questions, split="test", every=200)
    return g
