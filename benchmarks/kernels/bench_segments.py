"""segment_reduce beside torch.segment_reduce and a plain sum."""

from __future__ import annotations

import torch

from benchmarks.kernels.figure import Figure, seconds
from flowgraph.kernels import group_statistics, segment_reduce


def measure(device: torch.device) -> list[Figure]:
    """4M values in 4096 segments; 65,536 rewards in groups of 16."""
    offsets = torch.arange(0, 4_194_305, 1024)
    values = torch.ones(4_194_304, device=device)
    groups = torch.arange(0, 65_537, 16)
    rewards = torch.rand(65_536, device=device)
    moved = offsets.to(device)
    return [
        Figure(
            name="segment_reduce, 4M fp32 in 4096 segments",
            nbytes=values.nbytes,
            seconds=seconds(lambda: segment_reduce(values, offsets), device),
            beside="torch.segment_reduce",
            beside_seconds=seconds(
                lambda: torch.segment_reduce(values, "sum", offsets=moved, axis=0), device
            ),
        ),
        Figure(
            name="group_statistics, 65,536 rewards in groups of 16",
            nbytes=rewards.nbytes,
            seconds=seconds(lambda: group_statistics(rewards, groups), device),
            beside="std_mean of a matrix",
            beside_seconds=seconds(lambda: torch.std_mean(rewards.view(-1, 16), 1), device),
        ),
    ]
