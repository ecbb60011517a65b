"""Token cross-entropy: learn the next token of the targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flowgraph.algorithms.algorithm import Algorithm, Metrics, Outputs

if TYPE_CHECKING:
    from torch import Tensor


def token_cross_entropy() -> Algorithm:
    """Mean negative log-probability, in nats, over the step's masked tokens."""
    return Algorithm(name="token-cross-entropy", loss="flowgraph.algorithms.cross_entropy:loss")


def loss(outputs: Outputs, fields: Mapping[str, Tensor]) -> tuple[Tensor, Metrics]:
    """Sum of -log p over the positions whose `loss_mask` [T] is set (or weighted by it)."""
    mask = fields["loss_mask"].to(outputs.logprobs.dtype)
    # What lies outside the mask may be infinite, and infinity times zero is not zero.
    logprobs = outputs.logprobs.where(mask > 0, 0.0)
    total = -(logprobs * mask).sum()
    return total, {"loss": total.detach()}
