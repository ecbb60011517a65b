"""RLOO: REINFORCE with the mean of the group's other rewards as baseline (arXiv 2402.14740)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flowgraph.algorithms.algorithm import Algorithm, Metrics, Outputs, require_weight

if TYPE_CHECKING:
    from torch import Tensor


def rloo(*, entropy: float = 0.0) -> Algorithm:
    """RLOO with an entropy bonus.

    It has no ratio and so trusts that rows are trained once, by the version that made them: with
    several updates a step take `grpo`. ValueError for a negative weight.
    """
    require_weight("rloo", "entropy", entropy)
    return Algorithm(
        name="rloo",
        loss="flowgraph.algorithms.rloo:loss",
        loss_params={"entropy": entropy},
        credit="flowgraph.algorithms.rloo:advantages",
        needs=("advantage",),
    )


def loss(
    outputs: Outputs, fields: Mapping[str, Tensor], *, entropy: float = 0.0
) -> tuple[Tensor, Metrics]:
    """Sum over the masked positions of -A log p - entropy * H; reads `advantage` [T]."""
    mask = fields["loss_mask"].to(outputs.logprobs.dtype)
    # What lies outside the mask may be infinite, and infinity times zero is not zero.
    taken = mask > 0
    logprobs = outputs.logprobs.where(taken, 0.0)
    entropies = outputs.entropy.where(taken, 0.0)
    advantage = fields["advantage"].where(taken, 0.0)
    total = (-(advantage * logprobs + entropy * entropies) * mask).sum()
    return total, {"loss": total.detach(), "entropy": (entropies * mask).sum().detach()}


def advantages(
    rewards: npt.NDArray[np.floating], group_offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Reward minus the mean of the others in its group: n / (n - 1) * (reward - group mean).

    `rewards` [B], `group_offsets` [G + 1]; returns [B]. A group of one has no others: 0.
    """
    credit = np.zeros(len(rewards), dtype=np.float32)
    for start, stop in pairwise(group_offsets):
        group = rewards[start:stop].astype(np.float64)
        size = len(group)
        if size > 1:
            credit[start:stop] = (group - group.mean()) * (size / (size - 1))
    return credit
