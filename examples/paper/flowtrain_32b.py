"""FlowTrain's set-up "32B" (arXiv 2606.23087): a frozen vision tower in front of a Qwen3 backbone.

For planning: `flowgraph compile`, `inspect` and `simulate` read descriptions, and build no model.
What the paper states says "stated", what follows from its figures "derived", all else "assumed".
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

import flowgraph as fg
from flowgraph.models import hf_causal_lm, vit
from flowgraph.models.patches import patchify

PATCH, MERGE = 14, 2  # assumed, with the tower's shape: that of Qwen2-VL
WIDTH = 5120
IMAGE = 151_655  # assumed: Qwen's image placeholder

IMAGES = 1.0  # InfoVQA asks about one image at a time
TOKENS = fg.spread(2600, p95=7000)
"""A sample. Assumed: InfoVQA's posters are large, and L = 8192, stated, holds nearly all."""

PATCHES = fg.spread(9600, p95=26_000)
"""An image. Derived from TOKENS: four patches a feature, 200 tokens of text (assumed)."""


def build(
    data: str = "infovqa",
    backbone: str = "Qwen3-32B",
    batch: int = 256,  # stated
    context: int = 8192,  # stated
    lr: float = 1e-5,  # assumed
    encoder: str = "frozen",  # stated; "trained" is what the paper leaves out
    steps: int = 1400,  # stated, of the convergence run
) -> fg.Graph:
    """data, backbone: folders, which only a run would read."""
    g = fg.Graph("flowtrain-32b", steps=steps, cluster="../clusters/cluster-8x16.yaml")
    tower = g.module(
        "vit",
        fg.model(
            vit,
            layers=32,
            width=1280,
            heads=16,
            hidden=5120,
            patch=PATCH,
            merge=MERGE,
            channels=3,
            out_width=WIDTH,
        ),
        trainable=encoder == "trained",
        dtype="bfloat16",  # assumed
    )
    lm = g.module("lm", fg.model(qwen3_32b, path=backbone), dtype="bfloat16")
    samples = g.source(
        "samples",
        questions,
        path=data,
        expect={"images": IMAGES, "patches": PATCHES, "tokens": TOKENS},
    )
    features = samples.unnest("images", expect=IMAGES).apply(tower)
    packs = samples.join(features, placeholder=IMAGE).pack(tokens=context)
    packs.train(
        lm,
        *([tower] if encoder == "trained" else []),
        loss=fg.token_cross_entropy(),
        batch=batch,
        micro_batch=fg.tokens(context),  # assumed: one packed row at a time
        optimizer=fg.adamw(lr),  # assumed
    )
    return g


def qwen3_32b(*, path: str) -> Any:
    """The published weights, from a folder."""
    return hf_causal_lm(path=path, feature_width=WIDTH)


def _shape(*, path: str) -> dict[str, Any]:
    """Qwen3-32B as published, heads wider than width / heads; the files are not looked at."""
    layers, heads, kv_heads, head_width, hidden, vocab = 64, 64, 8, 128, 25_600, 151_936
    attention = WIDTH * head_width * (2 * heads + 2 * kv_heads) + 2 * head_width
    block = attention + 3 * WIDTH * hidden + 2 * WIDTH
    projector = WIDTH + WIDTH * (WIDTH + 1)
    return {
        "kind": "decoder",
        "parameters": layers * block + 2 * vocab * WIDTH + WIDTH + projector,
        "layers": layers,
        "width": WIDTH,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_width": head_width,
        "hidden": hidden,
        "vocab": vocab,
        "max_length": 32_768,
        "tied": False,
        "feature_width": WIDTH,
    }


qwen3_32b.describe = _shape  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Tokens with a placeholder a feature, the answer's tokens marked; the image as patches."""

    tokens: list[int]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]
    patches: Annotated[
        list[np.ndarray],
        fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), PATCH * PATCH * 3),
    ]
    rows: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]
    cols: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]


class Questions:
    """A folder with `questions.jsonl`, a line {"question", "answer", "image"} each: token ids, and
    the name of an array [height, width, 3] beside it."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path)
        self._lines = (self._folder / "questions.jsonl").read_text().splitlines()

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Question:
        line = json.loads(self._lines[index])
        image = patchify(np.load(self._folder / line["image"]), patch=PATCH, merge=MERGE)
        prompt = [IMAGE] * (len(image.patches) // MERGE**2) + line["question"]
        return Question(
            tokens=prompt + line["answer"],
            loss_mask=[0.0] * len(prompt) + [1.0] * len(line["answer"]),
            patches=[image.patches],
            rows=[image.rows],
            cols=[image.cols],
        )


def questions(*, path: str) -> "list[Question]":
    return Questions(path)  # type: ignore[return-value]
