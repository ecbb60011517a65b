"""gather_logprobs, linear_logprobs: log-probabilities of given tokens, and entropies.

    log p(t) = z_t / tau - log sum_v exp(z_v / tau)        H = -sum_v p(v) log p(v)

in fp32 whatever the logits' dtype. Bytes moved by `gather_logprobs`: logits once forward; once
read and once written (the gradient) backward. No [T, V] array but the caller's logits and their
gradient is ever made; `linear_logprobs` makes neither.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from flowgraph.kernels.backend import apply, path

IGNORE = -100
# Logits of one chunk of `linear_logprobs`: large enough for a full matmul, small beside weights.
CHUNK_BYTES = 32 << 20


def gather_logprobs(
    logits: Tensor,
    targets: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    ignore_index: int = IGNORE,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of each row: fp32 [...], fp32 [...].

    logits: [..., V] floating. targets: int [...]. temperature: > 0, one number or one a row.
    Rows whose target is `ignore_index` give 0, 0 and no gradient.
    Differentiable in `logits` through both results. ValueError on shapes or a target outside 0..V
    (the target on the CPU only; devices give NaN for it rather than wait).
    """
    if logits.dim() < 1 or targets.shape != logits.shape[:-1]:
        raise ValueError(f"targets: expects {list(logits.shape[:-1])}, got {list(targets.shape)}")
    vocabulary = logits.shape[-1]
    rows = targets.reshape(-1).to(torch.int64)
    _check_targets(rows, vocabulary, ignore_index)
    inverse = _inverse_temperature(temperature, targets)
    flat = logits.reshape(-1, vocabulary)
    logprobs, entropy = apply(_GatherLogprobs, flat, rows, inverse, ignore_index)
    return logprobs.view(targets.shape), entropy.view(targets.shape)


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    ignore_index: int = IGNORE,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`gather_logprobs(hidden @ weight.T + bias, ...)` without ever making [T, V].

    hidden: [..., D]. weight: [V, D]. bias: [V]. chunk: rows whose logits exist at once (default:
    32 MiB of them). The logits of a chunk are computed again for the gradient: one more matmul.
    Differentiable in hidden, weight and bias. Chunk boundaries depend on shapes only.
    """
    if hidden.shape[:-1] != targets.shape or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"expects hidden [..., D], weight [V, D], targets [...], got {list(hidden.shape)}, "
            f"{list(weight.shape)}, {list(targets.shape)}"
        )
    vocabulary = weight.shape[0]
    rows = targets.reshape(-1).to(torch.int64)
    _check_targets(rows, vocabulary, ignore_index)
    if chunk is None:
        chunk = max(1, CHUNK_BYTES // max(1, vocabulary * hidden.element_size()))
    if chunk < 1:
        raise ValueError(f"chunk: expects at least 1 row, got {chunk}")
    inverse = _inverse_temperature(temperature, targets)
    flat = hidden.reshape(-1, hidden.shape[-1])
    logprobs, entropy = apply(
        _LinearLogprobs, flat, weight, bias, rows, inverse, ignore_index, chunk
    )
    return logprobs.view(targets.shape), entropy.view(targets.shape)


def _inverse_temperature(temperature: float | Tensor, targets: Tensor) -> Tensor:
    """1 / tau, fp32 [T]."""
    if isinstance(temperature, Tensor):
        if temperature.requires_grad:
            raise ValueError("temperature: takes no gradient; detach it")
        return temperature.float().expand(targets.shape).reshape(-1).reciprocal()
    if not temperature > 0:
        raise ValueError(f"temperature: expects more than 0, got {temperature}")
    return torch.full((targets.numel(),), 1.0 / temperature, device=targets.device)


def _check_targets(targets: Tensor, vocabulary: int, ignore_index: int) -> None:
    if targets.device.type != "cpu" or targets.numel() == 0:
        return
    wrong = (targets != ignore_index) & ((targets < 0) | (targets >= vocabulary))
    if bool(wrong.any()):
        row = int(torch.nonzero(wrong)[0])
        raise ValueError(f"targets: {int(targets[row])} in row {row}, expects 0..{vocabulary - 1}")


class _GatherLogprobs(torch.autograd.Function):
    """(logits [T, V], targets, 1 / tau, ignore_index) -> (logprobs, entropy)."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, inverse: Tensor, ignore_index: int
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropy, lse = path("logprobs", logits).forward(
            logits, targets, inverse, ignore_index
        )
        ctx.save_for_backward(logits, targets, inverse, lse, entropy)
        ctx.ignore_index = ignore_index
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logprobs: Tensor, grad_entropy: Tensor
    ) -> tuple[Tensor, None, None, None]:
        logits, targets, inverse, lse, entropy = ctx.saved_tensors
        grad = torch.empty_like(logits, memory_format=torch.contiguous_format)
        path("logprobs", logits).backward(
            logits, targets, inverse, lse, entropy, grad_logprobs, grad_entropy,
            ctx.ignore_index, grad,
        )  # fmt: skip
        return grad, None, None, None


class _LinearLogprobs(torch.autograd.Function):
    """(hidden [T, D], weight [V, D], bias, targets, 1 / tau, ignore_index, chunk) -> the same."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        inverse: Tensor,
        ignore_index: int,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        results = hidden.new_empty((3, hidden.shape[0]), dtype=torch.float32)
        for rows in _chunks(hidden.shape[0], chunk):
            logits = _logits(hidden[rows], weight, bias)
            part = path("logprobs", logits).forward(
                logits, targets[rows], inverse[rows], ignore_index
            )
            for result, values in zip(results, part, strict=True):
                result[rows] = values
        logprobs, entropy, lse = results.unbind(0)
        ctx.save_for_backward(hidden, weight, bias, targets, inverse, lse, entropy)
        ctx.ignore_index, ctx.chunk = ignore_index, chunk
        return logprobs.clone(), entropy.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logprobs: Tensor, grad_entropy: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None, None]:
        hidden, weight, bias, targets, inverse, lse, entropy = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        # sums over chunks run in fp32: a bf16 running sum would lose the small chunks
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        for rows in _chunks(hidden.shape[0], ctx.chunk):
            logits = _logits(hidden[rows], weight, bias)
            path("logprobs", logits).backward(
                logits, targets[rows], inverse[rows], lse[rows], entropy[rows],
                grad_logprobs[rows], grad_entropy[rows], ctx.ignore_index, logits,
            )  # fmt: skip
            if grad_hidden is not None:
                torch.mm(logits, weight, out=grad_hidden[rows])
            if grad_weight is not None:
                _add_product(grad_weight, logits, hidden[rows])
            if grad_bias is not None:
                grad_bias += logits.sum(0, dtype=torch.float32)
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None, None, None, None,
        )  # fmt: skip


def _add_product(total: Tensor, logits: Tensor, hidden: Tensor) -> None:
    """total [V, D] += logits.T [V, t] @ hidden [t, D]."""
    if logits.dtype == total.dtype:
        total.addmm_(logits.T, hidden)
    else:
        total += torch.mm(logits.T, hidden)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return torch.mm(hidden, weight.T)
    return torch.addmm(bias, hidden, weight.T)


def _chunks(rows: int, chunk: int) -> list[slice]:
    return [slice(begin, min(begin + chunk, rows)) for begin in range(0, rows, chunk)]
