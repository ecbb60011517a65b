"""GRPO: group-relative advantages under a clipped ratio (Shao et al., arXiv 2402.03300).

The loss is averaged over the step's tokens rather than per answer, and the division by the
group's deviation is optional, both as in DAPO and Dr. GRPO (arXiv 2503.14476, 2503.20783).
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


def grpo(
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    entropy: float = 0.0,
    kl: float = 0.0,
    scale_by_std: bool = True,
) -> Algorithm:
    """GRPO with an entropy bonus; `kl` > 0 pulls towards a reference module.

    `clip_high` widens the upper side of the clip (default `clip`). ValueError for a clip outside
    (0, 1) or a negative weight.
    """
    require_share("grpo", "clip", clip)
    require_weight("grpo", "entropy", entropy)
    require_weight("grpo", "kl", kl)
    needs = ("advantage", "behaviour_logprobs")
    return Algorithm(
        name="grpo",
        loss="flowgraph.algorithms.grpo:loss",
        loss_params={"clip": clip, "clip_high": clip_high, "entropy": entropy, "kl": kl},
        credit="flowgraph.algorithms.grpo:advantages",
        credit_params={"scale_by_std": scale_by_std},
        needs=(*needs, "reference_logprobs") if kl > 0.0 else needs,
    )


def loss(
    outputs: Outputs,
    fields: Mapping[str, Tensor],
    *,
    clip: float = 0.2,
    clip_high: float | None = None,
    entropy: float = 0.0,
    kl: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """The clipped surrogate, summed over the masked positions."""
    return clipped_policy_loss(
        outputs, fields, clip=clip, clip_high=clip_high, entropy=entropy, kl=kl
    )


def advantages(
    rewards: npt.NDArray[np.floating],
    group_offsets: npt.NDArray[np.int64],
    *,
    scale_by_std: bool = True,
    epsilon: float = 1e-4,
) -> npt.NDArray[np.float32]:
    """Reward minus the group's mean, divided by its deviation plus `epsilon` if asked.

    `rewards` [B], `group_offsets` [G + 1]; returns [B]. A group of equal rewards gets zeros.
    """
    credit = np.zeros(len(rewards), dtype=np.float32)
    # A loop, not reduceat: a group's bits must not depend on the groups beside it.
    for start, stop in pairwise(group_offsets):
        group = rewards[start:stop].astype(np.float64)
        if stop > start:
            centred = group - group.mean()
            credit[start:stop] = centred / (group.std() + epsilon) if scale_by_std else centred
    return credit
