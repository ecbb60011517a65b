"""merge_features beside a copy and torch's masked_scatter."""

from __future__ import annotations

import torch

from benchmarks.kernels.figure import Figure, copy_seconds, seconds
from flowgraph.kernels import merge_features


def measure(device: torch.device) -> list[Figure]:
    """A pack of 16384 tokens of width 4096 in bf16, half of them placeholders."""
    embeddings = torch.ones(16384, 4096, dtype=torch.bfloat16, device=device)
    features = torch.ones(8192, 4096, dtype=torch.bfloat16, device=device)
    positions = torch.arange(0, 16384, 2, device=device)
    mask = torch.zeros(16384, dtype=torch.bool, device=device)
    mask[positions] = True
    nbytes = 2 * embeddings.nbytes
    took = seconds(lambda: merge_features(embeddings, features, positions), device)
    others = {
        "copy of the same bytes": copy_seconds(nbytes, device),
        "torch masked_scatter": seconds(
            lambda: embeddings.masked_scatter(mask[:, None], features), device
        ),
    }
    return [
        Figure(
            name="merge_features bf16 [16384, 4096], half images", nbytes=nbytes, seconds=took,
            beside=name, beside_seconds=other,
        )
        for name, other in others.items()
    ]  # fmt: skip
