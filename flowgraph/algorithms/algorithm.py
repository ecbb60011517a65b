"""What an algorithm is to the rest: names of two functions, their parameters, and their needs.

The contract of a **loss**, called by a trainer for every micro-batch:

    loss(outputs, fields, **params) -> (sum, metrics)

`outputs` and `fields` are aligned on the T positions of a packed micro-batch. Each returned value
is a sum over the positions whose `loss_mask` is set, never a mean: the trainer adds them over all
micro-batches and divides once by the step's sum of `loss_mask`, so that the result does not
depend on how the step was cut.

The contract of **credit**, called by a stage worker over complete groups:

    advantages(rewards, group_offsets, **params) -> advantages

`rewards` float [B], rows of group g being `group_offsets[g]:group_offsets[g + 1]`; returns
float32 [B]. A group's result does not depend on the groups beside it: a stage worker holds a few of
a step's groups, never all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Parameter: TypeAlias = int | float | bool | str | None
Metrics: TypeAlias = "dict[str, Tensor]"


class Outputs(Protocol):
    """What a forward gives a loss, per position of the packed micro-batch.

    `logprobs` [T]: of the token actually taken, with gradient. `entropy` [T]: of the distribution
    it was taken from, in nats, with gradient. `segment_ids` int32 [T], 0 for padding.
    """

    @property
    def logprobs(self) -> Tensor: ...
    @property
    def entropy(self) -> Tensor: ...
    @property
    def segment_ids(self) -> Tensor: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """A named loss and, for reinforcement learning, the credit that feeds it; plain data.

    `loss` and `credit` are "module:qualname". `needs` names the fields the loss reads besides
    `loss_mask`; the compiler checks that the stream carries them or that the runtime makes them.
    """

    name: str
    loss: str
    loss_params: Mapping[str, Parameter] = field(default_factory=dict)
    credit: str | None = None
    credit_params: Mapping[str, Parameter] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


def require_share(algorithm: str, name: str, value: float) -> None:
    """ValueError unless 0 < `value` < 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{algorithm}: {name} must lie between 0 and 1, got {value}")


def require_weight(algorithm: str, name: str, value: float) -> None:
    """ValueError unless `value` is 0 or more."""
    if not value >= 0.0:
        raise ValueError(f"{algorithm}: {name} must not be negative, got {value}")
