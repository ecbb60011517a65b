"""A small model whose stage does odd things: what people's code does when it is not well."""

import asyncio
import ctypes
import pdb
import sys
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


def build(what: str = "nothing", steps: int = 3) -> fg.Graph:
    g = fg.Graph("odd", steps=steps)
    lm = g.module("lm", fg.model(decoder, vocab=32, layers=1, width=16, heads=2))
    lines = g.source("lines", counting).map(oddly, name="oddly", what=what)
    lines.train(
        lm,
        loss=fg.token_cross_entropy(),
        batch=8,
        micro_batch=fg.tokens(64),
        optimizer=fg.adamw(1e-3),
    )
    return g


def counting() -> Sequence[Line]:
    return [Line([i % 32, (i + 1) % 32], np.ones(2, np.float32)) for i in range(256)]


def oddly(line: Line, *, what: str) -> Line:
    if line.tokens[0] != 5:
        return line
    match what:
        case "keyboard":
            raise KeyboardInterrupt
        case "cancelled":
            raise asyncio.CancelledError
        case "exit":
            sys.exit(3)
        case "breakpoint":
            breakpoint()
        case "debugger":
            pdb.set_trace()
        case "crash":
            ctypes.string_at(0)
        case "loud":
            print("x" * (1 << 20), flush=True)
    return line
