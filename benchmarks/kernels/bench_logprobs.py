"""gather_logprobs and linear_logprobs, forward and backward, beside log_softmax."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.kernels.figure import Figure, seconds
from flowgraph.kernels import gather_logprobs, linear_logprobs

WIDTH = 256


def measure(device: torch.device) -> list[Figure]:
    """2048 rows; a vocabulary of 4096 on the CPU, of 151,936 in bf16 on a device."""
    small = device.type == "cpu"
    rows, vocabulary = 2048, 4096 if small else 151_936
    dtype = torch.float32 if small else torch.bfloat16
    logits = torch.randn(rows, vocabulary, dtype=dtype, device=device, requires_grad=True)
    hidden = torch.randn(rows, WIDTH, dtype=dtype, device=device, requires_grad=True)
    weight = torch.randn(vocabulary, WIDTH, dtype=dtype, device=device, requires_grad=True)
    targets = torch.randint(0, vocabulary, (rows,), device=device)

    def by_softmax(values: Tensor) -> tuple[Tensor, Tensor]:
        logp = torch.log_softmax(values.float(), -1)
        return logp.gather(1, targets[:, None]), -(logp.exp() * logp).sum(1)

    def both_ways(results: Callable[[], tuple[Tensor, Tensor]], *inputs: Tensor) -> float:
        def run() -> None:
            logprobs, entropy = results()
            torch.autograd.grad(logprobs.sum() + entropy.sum(), inputs)

        return seconds(run, device)

    return [
        Figure(
            name=f"gather_logprobs [{rows}, {vocabulary}], both ways",
            nbytes=3 * logits.nbytes,
            seconds=both_ways(lambda: gather_logprobs(logits, targets), logits),
            beside="log_softmax, gather, entropy",
            beside_seconds=both_ways(lambda: by_softmax(logits), logits),
        ),
        Figure(
            name=f"linear_logprobs [{rows}, {WIDTH}] x {vocabulary}, both ways",
            nbytes=0,
            seconds=both_ways(lambda: linear_logprobs(hidden, weight, targets), hidden, weight),
            beside="matmul, log_softmax, gather, entropy",
            beside_seconds=both_ways(lambda: by_softmax(hidden @ weight.T), hidden, weight),
        ),
    ]
