"""Maps that keep arrays of the records that they were handed: one looks whether they change, one
leaves them to a thread of its own."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

import flowgraph as fg
from flowgraph.models import decoder


@dataclass(frozen=True, slots=True)
class Line:
    tokens: Annotated[np.ndarray, fg.tensor("int64", fg.ragged("tokens"))]
    loss_mask: Annotated[np.ndarray, fg.tensor("float32", fg.ragged("tokens"))]


KEPT: list[tuple[np.ndarray, np.ndarray]] = []
"""Arrays that were kept, each with a copy of what it was."""

UPLOAD_S = 1.5
"""What the thread takes for all that it has, longer than it takes to make more."""


def build(steps: int = 4, most: int = 30, upload: bool = False) -> fg.Graph:
    """most: arrays kept at a time; 0: all of them for ever. upload: until a thread is done."""
    g = fg.Graph("hoarder", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=64, layers=1, width=16, heads=2))
    lines = g.source("lines", counting).filter(good, name="good")
    if upload:
        lines = lines.map(hand_on, name="hand_on")
    else:
        lines = lines.map(remember, name="remember", most=most)
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=16,
        micro_batch=fg.tokens(256),
        optimizer=fg.adamw(1e-3),
    )
    return g


def counting() -> Sequence[Line]:
    """Line i counts from i on: no two that are near each other begin alike."""
    return [
        Line(np.arange(i, i + 12, dtype=np.int64) % 64, np.ones(12, np.float32))
        for i in range(1000)
    ]


def good(line: Line) -> bool:
    return line.tokens.size > 0


def remember(line: Line, *, most: int) -> Line:
    for array, was in KEPT:
        if not np.array_equal(array, was):
            raise ValueError(f"a kept array was {was.tolist()} and is {array.tolist()}")
    KEPT.append((line.tokens, line.tokens.copy()))
    if most:
        del KEPT[:-most]
    return line


def hand_on(line: Line) -> Line:
    if all(thread.name != "upload" for thread in threading.enumerate()):
        threading.Thread(target=_upload, name="upload", daemon=True).start()
    KEPT.append((line.tokens, line.tokens))
    return line


def _upload() -> None:
    network = threading.Event()
    while True:
        network.wait(UPLOAD_S)
        KEPT.clear()
