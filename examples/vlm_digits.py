"""A vision tower and a language model learn to answer questions about handwritten digits.

Both train, apart in place and time: the tower's features reach the decoder through shared memory,
and their gradients come back. Images are scikit-learn's scanned digits, resized; some questions
have several images and some have none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder, vit
from flowgraph.models.patches import patchify
from flowgraph.tokenizers import CharTokenizer

if TYPE_CHECKING:
    from torch import Tensor

TOKENIZER = CharTokenizer("0123456789 ?+#abcdefghijklmnopqrstuvwxyz")
IMAGE = TOKENIZER.encode("#")[0]  # stands where an image's features go, once a feature
PATCH, MERGE = 4, 2
KINDS = ("digit", "parity", "larger", "sum", "text")
SHARES = (0.45, 0.2, 0.2, 0.1, 0.05)
PIXEL_MEAN, PIXEL_STD = 4.88, 6.02
SIZES = (8, 12, 16)  # of an image's sides, in pixels, each drawn by itself


def build(
    batch: int = 64,
    steps: int = 1200,
    seed: int = 0,
    lr: float = 1e-3,
    encoder: str = "trained",
    eval_samples: int = 512,
) -> fg.Graph:
    g = fg.Graph("vlm-digits", steps=steps, seed=seed)
    tower = g.module(
        "vit",
        fg.model(vit, layers=2, width=64, heads=4, patch=PATCH, merge=MERGE),
        trainable=encoder == "trained",
    )
    lm = g.module(
        "lm",
        fg.model(
            decoder,
            vocab=TOKENIZER.vocab,
            layers=3,
            width=96,
            heads=4,
            embedding_std=0.2,
            feature_width=64,
        ),
    )
    samples = g.source("samples", digit_questions, split="train")
    features = samples.unnest("images").apply(tower)
    packs = samples.join(features, placeholder=IMAGE).pack(tokens=256)
    packs.train(
        lm,
        *([tower] if encoder == "trained" else []),
        loss=fg.token_cross_entropy(),
        batch=batch,
        optimizer=fg.adamw(lr),
        schedule=fg.linear_decay(last=0.4, warmup=20),
    )
    g.evaluate(
        "held-out",
        exact_match,
        source=digit_questions,
        split="test",
        samples=eval_samples,
        every=300,
    )
    return g


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Tokens with a placeholder a feature, the answer's tokens marked; images as patches."""

    tokens: list[int]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]
    kind: int
    patches: Annotated[
        list[np.ndarray],
        fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), PATCH * PATCH),
    ]
    rows: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]
    cols: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]


class DigitQuestions:
    """Endless questions; question `i` is always the same. Test digits are never trained on."""

    def __init__(self, split: str) -> None:
        self._test = split == "test"
        self._images, self._labels = scanned_digits(self._test)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Question:
        rng = np.random.default_rng((self._test, index))
        kind = int(rng.choice(len(KINDS), p=SHARES))
        text, answer, picks = self._ask(KINDS[kind], rng)
        images = [self._patches(pick, rng) for pick in picks]
        prompt = [TOKENIZER.bos]
        for image in images:
            prompt += [IMAGE] * (len(image.patches) // MERGE**2) + TOKENIZER.encode(" ")
        prompt += TOKENIZER.encode(text)
        reply = TOKENIZER.encode(answer, eos=True)
        return Question(
            tokens=prompt + reply,
            loss_mask=np.repeat(np.array([0, 1], np.float32), [len(prompt), len(reply)]),
            kind=kind,
            patches=[image.patches for image in images],
            rows=[image.rows for image in images],
            cols=[image.cols for image in images],
        )

    def _ask(self, kind: str, rng: np.random.Generator) -> tuple[str, str, list[int]]:
        if kind == "text":
            a, b = (int(v) for v in rng.integers(10, size=2))
            return f"{a}+{b}?", str(a + b), []
        picks = rng.integers(len(self._labels), size=1 if kind in ("digit", "parity") else 2)
        while kind == "larger" and len({self._labels[p] for p in picks}) == 1:
            picks = rng.integers(len(self._labels), size=2)
        values = [int(self._labels[p]) for p in picks]
        answers = {
            "digit": str(values[0]),
            "parity": "odd" if values[0] % 2 else "even",
            "larger": "first" if values[0] > values[-1] else "second",
            "sum": str(sum(values)),
        }
        return f"{kind}?", answers[kind], picks.tolist()

    def _patches(self, pick: int, rng: np.random.Generator) -> Any:
        height, width = rng.choice(SIZES, size=2)
        image = interpolation(8, height) @ self._images[pick] @ interpolation(8, width).T
        return patchify(image, patch=PATCH, merge=MERGE, mean=PIXEL_MEAN, std=PIXEL_STD)


def digit_questions(*, split: str) -> "list[Question]":
    return DigitQuestions(split)  # type: ignore[return-value]


@cache
def scanned_digits(test: bool) -> tuple[np.ndarray, np.ndarray]:
    """A fifth of scikit-learn's 1797 digits is held out: images [n, 8, 8] and labels [n]."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    held_out = len(order) // 5
    chosen = order[:held_out] if test else order[held_out:]
    return data.images[chosen], data.target[chosen]


@cache
def interpolation(size: int, target: int) -> np.ndarray:
    """Linear interpolation as a matrix [target, size]."""
    at = np.linspace(0, size - 1, target)
    low = np.minimum(at.astype(int), size - 2)
    matrix = np.zeros((target, size))
    matrix[np.arange(target), low] = 1 - (at - low)
    matrix[np.arange(target), low + 1] = at - low
    return matrix


def exact_match(
    outputs: Any, fields: Mapping[str, "Tensor"]
) -> dict[str, tuple["Tensor", "Tensor"]]:
    """Share of answers whose every token is the likeliest one, over all and by kind."""
    mask = fields["loss_mask"] > 0
    segment = outputs.segment_ids[mask].unique_consecutive(return_inverse=True)[1]
    wrong = (outputs.predictions != fields["tokens"])[mask].float()
    answers = int(segment.max()) + 1
    right = wrong.new_zeros(answers).index_add(0, segment, wrong) == 0
    kind = fields["kind"][mask].new_zeros(answers).index_copy(0, segment, fields["kind"][mask])
    figures = {"exact_match": (right.sum(), right.new_tensor(answers, dtype=kind.dtype))}
    for number, name in enumerate(KINDS):
        figures[name] = (right[kind == number].sum(), (kind == number).sum())
    return figures
