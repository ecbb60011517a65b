"""A train stage's optimizer and its learning rate over the run, from plain data.

Optimizers are torch's own, over one flat parameter; their fused CPU and device kernels apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Stage

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "adamw": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "adam": ("lr", "betas", "eps", "weight_decay", "amsgrad"),
    "sgd": ("lr", "momentum", "dampening", "nesterov", "weight_decay"),
}
"""Optimizers by name, with the settings each takes; meanings and defaults are torch's."""

_CLASSES: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


def build_optimizer(stage: Stage, weights: nn.Parameter) -> torch.optim.Optimizer:
    """The stage's optimizer over one flat parameter.

    Raises GraphError for an unknown name or setting, or a missing `lr`.
    """
    settings: dict[str, Any] = dict(stage.attributes["optimizer"])
    name = str(settings.pop("name", "adamw")).lower()
    if name not in SETTINGS:
        raise _wrong(stage, f"optimizer {name!r}: expects one of {', '.join(SETTINGS)}")
    for setting in settings:
        if setting not in SETTINGS[name]:
            raise _wrong(
                stage,
                f"optimizer '{name}' has no setting {setting!r}: expects "
                f"{', '.join(SETTINGS[name])}",
            )
    if "lr" not in settings:
        raise _wrong(stage, f"optimizer '{name}': the learning rate `lr` is missing")
    try:
        return _CLASSES[name]([weights], fused=True, **settings)
    except (TypeError, ValueError) as error:
        raise _wrong(stage, f"optimizer '{name}': {error}") from error


SCHEDULES: Mapping[str, tuple[str, ...]] = {
    "constant": ("warmup",),
    "linear_decay": ("warmup", "last"),
}
"""Schedules by name, with the settings each takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Learning rate as a function of the update's number in the whole run, from 0.

    base: the optimizer's rate. updates: of the whole run. warmup: updates over which the rate rises
    linearly, to `base` at the last of them. last: share of the run over which it then falls
    linearly, towards 0 just after the run's end; 0 is never.
    """

    base: float
    updates: int
    warmup: int = 0
    last: float = 0.0

    @classmethod
    def of(cls, stage: Stage, *, steps: int, updates: int) -> Schedule:
        """A train stage's schedule over `steps` steps of `updates` updates; warmup is in steps.

        Raises GraphError for an unknown name or setting.
        """
        settings: dict[str, Any] = dict(stage.attributes.get("schedule", {}))
        name = str(settings.pop("name", "constant"))
        if name not in SCHEDULES:
            raise _wrong(stage, f"schedule {name!r}: expects one of {', '.join(SCHEDULES)}")
        for setting in settings:
            if setting not in SCHEDULES[name]:
                raise _wrong(
                    stage,
                    f"schedule '{name}' has no setting {setting!r}: expects "
                    f"{', '.join(SCHEDULES[name])}",
                )
        return cls(
            base=float(stage.attributes["optimizer"]["lr"]),
            updates=steps * updates,
            warmup=int(settings.get("warmup", 0)) * updates,
            last=float(settings.get("last", 1.0)) if name == "linear_decay" else 0.0,
        )

    def rate(self, update: int) -> float:
        """The rate of update number `update`."""
        rising = min(1.0, (update + 1) / self.warmup) if self.warmup else 1.0
        falling = (
            min(1.0, (self.updates - update) / (self.last * self.updates)) if self.last else 1.0
        )
        return self.base * rising * max(0.0, falling)


def _wrong(stage: Stage, problem: str) -> GraphError:
    return GraphError(f"stage '{stage.name}': {problem}", at=stage.at)
