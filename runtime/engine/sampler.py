"""From logits and uniforms to tokens: inverse-CDF sampling of a whole batch.

Guarantee: a row's token and log-probability are functions of that row's logits, temperature,
uniform and allowed set alone, bit for bit: the softmax works row by row, the cumulative sum is
sequential, and everything else is exact or takes one element at a time.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sample(
    logits: Tensor,
    *,
    temperature: NDArray[np.float64],
    uniforms: NDArray[np.float64],
    allowed: Tensor | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens int64 [n] and their log-probabilities float32 [n] from `logits` [n, V].

    `temperature` >= 0 and `uniforms` in [0, 1) are [n]; `allowed` bool [n, V], None for all. The
    distribution is softmax(logits / temperature) over the allowed tokens, in float64; temperature
    0 is its limit: the likeliest, evenly among equals. A log-probability is NaN if logits are.
    """
    scores = logits.double()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    probabilities = torch.softmax(_tempered(scores, temperature), dim=-1)
    cumulative = probabilities.cumsum(dim=-1)
    threshold = torch.from_numpy(uniforms).to(logits.device).unsqueeze(1) * cumulative[:, -1:]
    # The first token whose cumulative probability exceeds the threshold. It has probability > 0,
    # and it exists, since u < 1 makes u * total < total in floating point too.
    tokens = torch.searchsorted(cumulative, threshold, right=True)
    tokens.clamp_(max=logits.shape[1] - 1)  # only NaN gets there
    chosen = probabilities.gather(1, tokens).squeeze(1).cpu().numpy()
    return tokens.squeeze(1).cpu().numpy(), np.log(chosen).astype(np.float32)


def _tempered(scores: Tensor, temperature: NDArray[np.float64]) -> Tensor:
    """Scores divided by each row's temperature; at 0 all but the greatest become -inf."""
    if (temperature == 1.0).all():
        return scores
    divisor = torch.from_numpy(temperature).to(scores.device).unsqueeze(1)
    if (temperature > 0.0).all():
        return scores / divisor
    likeliest = scores == scores.amax(dim=-1, keepdim=True)
    greedy = torch.zeros_like(scores).masked_fill_(~likeliest, -torch.inf)
    return torch.where(divisor > 0.0, scores / divisor, greedy)
