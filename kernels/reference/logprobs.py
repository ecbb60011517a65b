"""Log-probabilities by fp32 log-softmax: the reference of the kernels and the path on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

# fp32 scratch of one block of rows: stays in a core's cache share
BLOCK_BYTES = 4 << 20


def forward(
    logits: Tensor, targets: Tensor, inverse: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """logits [T, V], targets [T], 1 / tau [T] -> logprobs, entropy, log-sum-exp: fp32 [T] each."""
    results = torch.zeros((3, logits.shape[0]), dtype=torch.float32, device=logits.device)
    logprobs, entropy, lse = results.unbind(0)
    for rows in _blocks(logits):
        scaled = logits[rows].float() * inverse[rows, None]
        lse[rows] = torch.logsumexp(scaled, 1)
        keep = targets[rows] != ignore_index
        target = targets[rows].clamp(min=0)[:, None] * keep[:, None]
        picked = scaled.gather(1, target).squeeze(1) - lse[rows]
        logprobs[rows] = torch.where(keep, picked, 0.0)
        # H = lse - sum p z, with z = -inf (p = 0) counted as 0
        scaled -= lse[rows, None]
        weighted = torch.special.entr(torch.exp(scaled)).sum(1)
        entropy[rows] = torch.where(keep, weighted, 0.0)
    return logprobs, entropy, lse


def backward(
    logits: Tensor,
    targets: Tensor,
    inverse: Tensor,
    lse: Tensor,
    entropy: Tensor,
    grad_logprobs: Tensor,
    grad_entropy: Tensor,
    ignore_index: int,
    out: Tensor,
) -> None:
    """Writes the gradient of the logits, [T, V], to `out`, which may be `logits` itself.

    d logp_t / dz_v = (1[v = t] - p_v) / tau        dH / dz_v = -p_v (log p_v + H) / tau
    """
    for rows in _blocks(logits):
        logp = logits[rows].float() * inverse[rows, None] - lse[rows, None]
        prob = torch.exp(logp)
        keep = (targets[rows] != ignore_index).float() * inverse[rows]
        by_logprob, by_entropy = grad_logprobs[rows] * keep, grad_entropy[rows] * keep
        # p log p is 0 where p is: -inf logits must not become NaN
        logp.clamp_(min=torch.finfo(torch.float32).min).add_(entropy[rows, None])
        logp.mul_(by_entropy[:, None]).add_(by_logprob[:, None])
        grad = prob.mul_(logp).neg_()
        target = targets[rows].clamp(min=0)[:, None] * (keep[:, None] != 0)
        grad.scatter_add_(1, target, by_logprob[:, None])
        out[rows] = grad.to(out.dtype)


def _blocks(logits: Tensor) -> list[slice]:
    rows, vocabulary = logits.shape
    step = max(1, BLOCK_BYTES // max(4, 4 * vocabulary))
    return [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
