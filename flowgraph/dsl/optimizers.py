"""Optimizers and learning-rate schedules as plain data; trainers make torch's own from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flowgraph.dsl.units import real, whole


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer's name and its settings, those of torch's class of that name."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"name": self.name, **self.settings}


@dataclass(frozen=True, slots=True)
class Schedule:
    """How the learning rate moves over the run's steps."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return {"name": self.name, **self.settings}


def adamw(
    lr: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """AdamW (arXiv 1711.05101): weight decay apart from the gradient.

    >>> packs.train(lm, loss=fg.token_cross_entropy(), batch=64, optimizer=fg.adamw(1e-3))
    """
    return Optimizer("adamw", _adam_settings("adamw", lr, betas, eps, weight_decay))


def adam(
    lr: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Adam (arXiv 1412.6980). `optimizer=fg.adam(2e-3)`."""
    return Optimizer("adam", _adam_settings("adam", lr, betas, eps, weight_decay))


def sgd(lr: float, *, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """Stochastic gradient descent. `optimizer=fg.sgd(0.1, momentum=0.9)`."""
    settings = {
        "lr": real(lr, "sgd: lr", above=0),
        "momentum": _share("sgd: momentum", momentum),
        "weight_decay": real(weight_decay, "sgd: weight_decay", least=0),
    }
    return Optimizer("sgd", settings)


def constant(*, warmup: int = 0) -> Schedule:
    """The optimizer's learning rate throughout, after `warmup` steps of linear rise from 0."""
    return Schedule("constant", {"warmup": whole(warmup, "constant: warmup", least=0)})


def linear_decay(*, last: float = 1.0, warmup: int = 0) -> Schedule:
    """Linear fall to 0 over the `last` share of the run; before it constant.

    warmup: steps of linear rise from 0 at the start.
    """
    settings = {
        "last": real(last, "linear_decay: last", above=0, most=1),
        "warmup": whole(warmup, "linear_decay: warmup", least=0),
    }
    return Schedule("linear_decay", settings)


def _adam_settings(
    name: str, lr: float, betas: tuple[float, float], eps: float, weight_decay: float
) -> dict[str, Any]:
    return {
        "lr": real(lr, f"{name}: lr", above=0),
        "betas": tuple(_share(f"{name}: betas", beta) for beta in betas),
        "eps": real(eps, f"{name}: eps", above=0),
        "weight_decay": real(weight_decay, f"{name}: weight_decay", least=0),
    }


def _share(what: str, value: float) -> float:
    return real(value, what, least=0, below=1)
