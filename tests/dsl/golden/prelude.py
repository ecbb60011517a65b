"""What the golden graph files share: records, functions, models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

import flowgraph as fg


@dataclass
class Task:
    question: str
    prompt: list[int]
    answer: int = 0


@dataclass
class Sample:
    tokens: list[int]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]
    patches: Annotated[
        list[np.ndarray], fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), 16)
    ]
    rows: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]
    cols: Annotated[list[np.ndarray], fg.tensor("int64", fg.ragged("images"), fg.ragged("patches"))]


def arithmetic(*, operands: int = 2) -> Sequence[Task]:
    return [Task("1+1=", [1] * operands)]


def samples(*, split: str = "train") -> Sequence[Sample]:
    return [Sample([1], [1.0], [], [], [])]


async def play(task: Task, solver: fg.Agent, *, penalty: float = 0.3) -> fg.Rewards:
    return fg.Rewards({"solver": -penalty})


def log(record: object) -> None: ...


def metric(outputs: Any, fields: Any) -> dict[str, Any]:
    return {}


LM = fg.model(fg.models.decoder, vocab=20, layers=1, width=16, heads=2, max_length=64)
VIT = fg.model(fg.models.vit, layers=1, width=16, heads=2)
ADAM = fg.adam(1e-3)
CROSS_ENTROPY = fg.token_cross_entropy()
