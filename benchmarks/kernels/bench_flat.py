"""flatten, unflatten_ and digest128 beside a copy of the same bytes."""

from __future__ import annotations

import torch

from benchmarks.kernels.figure import Figure, copy_seconds, seconds
from flowgraph.kernels import digest128, flatten, unflatten_


def measure(device: torch.device) -> list[Figure]:
    """64 parameters of 1 MiB elements (16 on the CPU), with and without a cast."""
    count = 16 if device.type == "cpu" else 64
    tensors = {f"p{number}": torch.randn(1 << 20, device=device) for number in range(count)}
    figures = []
    for dtype, label in ((None, "fp32"), (torch.bfloat16, "fp32 to bf16")):
        buffer, _ = flatten(tensors, dtype)
        nbytes = sum(tensor.nbytes for tensor in tensors.values()) + buffer.nbytes
        copied = copy_seconds(nbytes, device)
        for name, call in (
            ("flatten", lambda: flatten(tensors, dtype, out=buffer)),  # noqa: B023
            ("unflatten_", lambda: unflatten_(buffer, tensors, dtype)),  # noqa: B023
        ):
            figures.append(
                Figure(
                    name=f"{name} {count}M values, {label}, with digest",
                    nbytes=nbytes,
                    seconds=seconds(call, device),
                    beside="copy of the same bytes",
                    beside_seconds=copied,
                )
            )
    figures.append(
        Figure(
            name="digest128 of that buffer",
            nbytes=buffer.nbytes,
            seconds=seconds(lambda: digest128(buffer), device),
            beside="copy of as many bytes",
            beside_seconds=copy_seconds(buffer.nbytes, device),
        )
    )
    return figures
