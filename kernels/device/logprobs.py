"""gather_logprobs: one pass over the logits forward, one pass backward, fp32 inside.

With x = z / tau, m = max x, s = sum e^(x - m), t = sum (x - m) e^(x - m):
log-sum-exp = m + log s, and the entropy is log s - t / s. All three are kept up in one pass.
"""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from flowgraph.kernels.device.variant import Variant, launch, power_of_two

BLOCK_V = 4096
WARPS = 8
TRITON_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


@triton.jit
def logprobs_forward(
    logits,  # [T, V]
    targets,  # int64 [T]
    inverse,  # fp32 [T]: 1 / tau
    logprobs,  # fp32 [T]
    entropy,  # fp32 [T]
    lse,  # fp32 [T]
    vocabulary,  # V
    ignore_index,
    BLOCK_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    begin = logits + row * vocabulary
    scale = tl.load(inverse + row)
    top = float("-inf")
    total = 0.0
    weighted = 0.0
    for first in range(0, vocabulary, BLOCK_V):
        column = first + tl.arange(0, BLOCK_V)
        z = tl.load(begin + column, mask=column < vocabulary, other=float("-inf"))
        x = z.to(tl.float32) * scale
        higher = tl.maximum(top, tl.max(x, 0))
        # until a finite logit was seen there is nothing to shift by
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        moved = tl.where(top == float("-inf"), 0.0, top - shift)
        shrink = tl.where(top == float("-inf"), 0.0, tl.exp(moved))
        e = tl.exp(x - shift)
        # a logit of -inf has probability 0, and 0 * -inf is 0 here
        xe = tl.where(x == float("-inf"), 0.0, x - shift) * e
        weighted = shrink * (weighted + moved * total) + tl.sum(xe, 0)
        total = shrink * total + tl.sum(e, 0)
        top = higher
    log_total = tl.log(total)
    norm = top + log_total
    target = tl.load(targets + row)
    known = (target >= 0) & (target < vocabulary)
    picked = tl.load(begin + tl.where(known, target, 0)).to(tl.float32) * scale - norm
    picked = tl.where(known, picked, float("nan"))
    keep = target != ignore_index
    tl.store(logprobs + row, tl.where(keep, picked, 0.0))
    tl.store(entropy + row, tl.where(keep, log_total - weighted / total, 0.0))
    tl.store(lse + row, norm)


@triton.jit
def logprobs_backward(
    logits,  # [T, V]
    targets,  # int64 [T]
    inverse,  # fp32 [T]: 1 / tau
    lse,  # fp32 [T]
    entropy,  # fp32 [T]
    grad_logprobs,  # fp32 [T]
    grad_entropy,  # fp32 [T]
    grad,  # [T, V], may be `logits`: every element is read by the program that writes it
    vocabulary,  # V
    ignore_index,
    BLOCK_V: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    mask = column < vocabulary
    scale = tl.load(inverse + row)
    target = tl.load(targets + row)
    factor = tl.where(target != ignore_index, scale, 0.0)
    by_logprob = tl.load(grad_logprobs + row) * factor
    by_entropy = tl.load(grad_entropy + row) * factor
    z = tl.load(logits + row * vocabulary + column, mask=mask, other=float("-inf"))
    logp = z.to(tl.float32) * scale - tl.load(lse + row)
    p = tl.exp(logp)
    # p log p is 0 where p is: a logit of -inf must not become NaN
    slope = by_logprob + by_entropy * (tl.where(p == 0.0, 0.0, logp) + tl.load(entropy + row))
    value = -p * slope
    value += tl.where(column == target, by_logprob, 0.0)
    tl.store(grad + row * vocabulary + column, value, mask=mask)


def _variants(kind: str) -> tuple[Variant, ...]:
    floats = ("inverse", "logprobs", "entropy", "lse")
    gradients = ("inverse", "lse", "entropy", "grad_logprobs", "grad_entropy")
    ends = {"vocabulary": "i32", "ignore_index": "i64"}
    forward = {
        "logits": f"*{kind}", "targets": "*i64", **dict.fromkeys(floats, "*fp32"), **ends,
    }  # fmt: skip
    backward = {
        "logits": f"*{kind}", "targets": "*i64", **dict.fromkeys(gradients, "*fp32"),
        "grad": f"*{kind}", **ends,
    }  # fmt: skip
    return tuple(
        Variant(
            kernel=kernel,
            label=kind,
            signature=signature,
            constexprs={"BLOCK_V": BLOCK_V},
            aligned=tuple(name for name in signature if name != "ignore_index"),
            store=store,
            warps=WARPS,
        )
        for kernel, signature, store in (
            (logprobs_forward, forward, 0),
            (logprobs_backward, backward, 16),
        )
    )


VARIANTS = tuple(variant for kind in TRITON_TYPES.values() for variant in _variants(kind))


def forward(
    logits: Tensor, targets: Tensor, inverse: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """logits [T, V], targets [T], 1 / tau [T] -> logprobs, entropy, log-sum-exp: fp32 [T] each."""
    rows, vocabulary = logits.shape
    results = torch.empty((3, rows), dtype=torch.float32, device=logits.device)
    if rows:
        launch(logprobs_forward, (rows,), logits.device,
            _supported(logits).contiguous(), targets, inverse, *results, vocabulary, ignore_index,
            BLOCK_V=_block(vocabulary), num_warps=WARPS,
        )  # fmt: skip
    logprobs, entropy, lse = results.unbind(0)
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
    """Writes the gradient of the logits, [T, V], to `out`, which may be `logits` itself."""
    rows, vocabulary = logits.shape
    block = _block(vocabulary)
    if rows == 0 or vocabulary == 0:
        return
    launch(logprobs_backward, (rows, triton.cdiv(vocabulary, block)), logits.device,
        logits.contiguous(), targets, inverse, lse, entropy, grad_logprobs.contiguous(),
        grad_entropy.contiguous(), out, vocabulary, ignore_index, BLOCK_V=block, num_warps=WARPS,
    )  # fmt: skip


def _supported(logits: Tensor) -> Tensor:
    if logits.dtype not in TRITON_TYPES:
        raise ValueError(f"logits: expects fp32, bf16 or fp16 on a device, got {logits.dtype}")
    return logits


def _block(vocabulary: int) -> int:
    return min(BLOCK_V, power_of_two(vocabulary))
