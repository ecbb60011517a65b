"""PPO-clip with a penalty for leaving a reference, without a critic (arXiv 1707.06347).

Credit is the reward whitened within its group: without a critic, the other tries at the same task
are the best guess of what it was worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from flowgraph.algorithms.algorithm import (
    Algorithm,
    Metrics,
    Outputs,
    require_share,
    require_weight,
)
from flowgraph.algorithms.clipped_policy import clipped_policy_loss

if TYPE_CHECKING:
    from torch import Tensor


def ppo(*, clip: float = 0.2, kl: float = 0.05, entropy: float = 0.0) -> Algorithm:
    """PPO-clip; `kl` weighs the divergence from a reference module (0: no reference needed).

    ValueError for a clip outside (0, 1) or a negative weight.
    """
    require_share("ppo", "clip", clip)
    require_weight("ppo", "kl", kl)
    require_weight("ppo", "entropy", entropy)
    needs = ("advantage", "behaviour_logprobs")
    return Algorithm(
        name="ppo",
        loss="flowgraph.algorithms.ppo:loss",
        loss_params={"clip": clip, "kl": kl, "entropy": entropy},
        credit="flowgraph.algorithms.ppo:advantages",
        needs=(*needs, "reference_logprobs") if kl > 0.0 else needs,
    )


def loss(
    outputs: Outputs,
    fields: Mapping[str, Tensor],
    *,
    clip: float = 0.2,
    kl: float = 0.05,
    entropy: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """The clipped surrogate plus the penalty, summed over the masked positions."""
    return clipped_policy_loss(outputs, fields, clip=clip, clip_high=None, entropy=entropy, kl=kl)


def advantages(
    rewards: npt.NDArray[np.floating],
    group_offsets: npt.NDArray[np.int64],
    *,
    epsilon: float = 1e-8,
) -> npt.NDArray[np.float32]:
    """Rewards [B] at mean 0 and deviation 1 within each group of `group_offsets` [G + 1].

    Returns [B]. A group of equal rewards gets zeros.
    """
    credit = np.zeros(len(rewards), dtype=np.float32)
    # A loop, not reduceat: a group's bits must not depend on the groups beside it.
    for start, stop in pairwise(group_offsets):
        group = rewards[start:stop].astype(np.float64)
        if stop > start:
            credit[start:stop] = (group - group.mean()) / (group.std() + epsilon)
    return credit
