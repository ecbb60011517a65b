"""Optimizers are torch's own; the learning rate is a function of the update's number."""

from typing import Any

import pytest
import torch
from torch import nn

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Stage
from flowgraph.runtime.trainer.optimizer import Schedule, build_optimizer
from tests.runtime.trainer.graphs import CROSS_ENTROPY, train_stage


def stage(**attributes: Any) -> Stage:
    return train_stage(CROSS_ENTROPY, ("lm",), **attributes)


@pytest.mark.parametrize(
    ("name", "settings", "torchs"),
    [
        ("adamw", {"betas": (0.8, 0.95), "weight_decay": 0.1}, torch.optim.AdamW),
        ("adam", {"eps": 1e-6}, torch.optim.Adam),
        ("sgd", {"momentum": 0.9}, torch.optim.SGD),
    ],
)
def test_an_optimizer_moves_weights_as_torchs_own_of_that_name(
    name: str, settings: dict[str, Any], torchs: Any
) -> None:
    ours, theirs = nn.Parameter(torch.linspace(-1, 1, 64)), nn.Parameter(torch.linspace(-1, 1, 64))
    first = build_optimizer(stage(optimizer={"name": name, "lr": 0.1, **settings}), ours)
    second = torchs([theirs], lr=0.1, **settings)
    for step in range(3):
        ours.grad = theirs.grad = torch.sin(torch.arange(64.0) + step)
        first.step()
        second.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"name": "adamax", "lr": 1.0}, "optimizer 'adamax': expects one of adamw, adam, sgd"),
        ({"name": "sgd", "lr": 1.0, "beta": 1}, "'sgd' has no setting 'beta': expects lr, "),
        ({"name": "adam"}, "the learning rate `lr` is missing"),
        ({"name": "adam", "lr": -1.0}, "optimizer 'adam': Invalid learning rate"),
    ],
)
def test_a_wrong_optimizer_is_refused(optimizer: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        build_optimizer(stage(optimizer=optimizer), nn.Parameter(torch.zeros(16)))


def rates(schedule: dict[str, Any], *, steps: int, updates: int = 1) -> list[float]:
    found = Schedule.of(stage(schedule=schedule), steps=steps, updates=updates)
    return [round(found.rate(update) / 1e-2, 6) for update in range(steps * updates)]


def test_a_constant_rate_stays_and_may_rise_first() -> None:
    assert rates({}, steps=3) == [1, 1, 1]
    assert rates({"name": "constant", "warmup": 2}, steps=4) == [0.5, 1, 1, 1]


def test_a_linear_decay_falls_over_the_last_share_of_the_run() -> None:
    decay = {"name": "linear_decay", "last": 0.4}
    assert rates(decay, steps=10) == [1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert rates({"name": "linear_decay", "warmup": 1}, steps=2, updates=2) == [
        0.5,
        0.75,
        0.5,
        0.25,
    ]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"name": "cosine"}, "schedule 'cosine': expects one of constant, linear_decay"),
        ({"name": "constant", "last": 1}, "schedule 'constant' has no setting 'last'"),
    ],
)
def test_a_wrong_schedule_is_refused(schedule: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Schedule.of(stage(schedule=schedule), steps=1, updates=1)
