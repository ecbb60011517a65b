"""The clipped surrogate that GRPO and PPO share (Schulman et al., arXiv 1707.06347)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flowgraph.algorithms.algorithm import Metrics, Outputs

if TYPE_CHECKING:
    from torch import Tensor


def clipped_policy_loss(
    outputs: Outputs,
    fields: Mapping[str, Tensor],
    *,
    clip: float,
    clip_high: float | None,
    entropy: float,
    kl: float,
) -> tuple[Tensor, Metrics]:
    """Sum over positions of -min(r A, clip(r) A) - entropy * H + kl * KL(policy || reference).

    r = exp(logprob - behaviour logprob). Reads `advantage`, `behaviour_logprobs`, `loss_mask` and,
    if `kl` > 0, `reference_logprobs`; all [T].
    """
    mask = fields["loss_mask"].to(outputs.logprobs.dtype)
    # What lies outside the mask may be anything, infinities included: take it out before exp.
    taken = mask > 0
    log_ratio = (outputs.logprobs - fields["behaviour_logprobs"]).where(taken, 0.0)
    advantage = fields["advantage"].where(taken, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + (clip if clip_high is None else clip_high))
    surrogate = (ratio * advantage).minimum(clipped * advantage)
    entropies = outputs.entropy.where(taken, 0.0)
    total = -(surrogate + entropy * entropies)
    metrics = {
        "entropy": (entropies * mask).sum().detach(),
        "clipped": ((clipped * advantage < ratio * advantage) * mask).sum().detach(),
        # http://joschu.net/blog/kl-approx.html, k3: unbiased, never negative.
        "behaviour_kl": ((ratio - 1.0 - log_ratio) * mask).sum().detach(),
    }
    if kl > 0.0:
        log_gap = (fields["reference_logprobs"] - outputs.logprobs).where(taken, 0.0)
        divergence = log_gap.exp() - 1.0 - log_gap
        total = total + kl * divergence
        metrics["reference_kl"] = (divergence * mask).sum().detach()
    loss = (total * mask).sum()
    metrics["loss"] = loss.detach()
    return loss, metrics
