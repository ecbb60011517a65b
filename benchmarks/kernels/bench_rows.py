"""gather_rows, write_rows_ and scatter_rows beside a copy and torch's own indexing."""

from __future__ import annotations

import torch

from benchmarks.kernels.figure import Figure, copy_seconds, seconds
from flowgraph.kernels import gather_rows, scatter_rows, write_rows_


def measure(device: torch.device) -> list[Figure]:
    """128 MiB of bf16 rows of 4096, in random order."""
    generator = torch.Generator().manual_seed(0)
    source = torch.ones(16384, 4096, dtype=torch.bfloat16, device=device)
    index = torch.randperm(16384, generator=generator).to(device)
    nbytes = 2 * source.nbytes
    out = torch.empty_like(source)
    copied = copy_seconds(nbytes, device)
    gathered = seconds(lambda: gather_rows(source, index, out=out), device)
    written = seconds(lambda: write_rows_(out, index, source, distinct=True), device)
    figures = [
        Figure(
            name="gather_rows bf16 [16384, 4096]", nbytes=nbytes, seconds=gathered,
            beside="copy of the same bytes", beside_seconds=copied,
        ),
        Figure(
            name="gather_rows bf16 [16384, 4096]", nbytes=nbytes, seconds=gathered,
            beside="torch.index_select",
            beside_seconds=seconds(lambda: torch.index_select(source, 0, index, out=out), device),
        ),
        Figure(
            name="write_rows_ bf16 [16384, 4096]", nbytes=nbytes, seconds=written,
            beside="index_copy_",
            beside_seconds=seconds(lambda: out.index_copy_(0, index, source), device),
        ),
    ]  # fmt: skip
    repeated = index % 4096
    for deterministic in (True, False):
        order = "in order" if deterministic else "in any order"
        figures.append(
            Figure(
                name=f"scatter_rows to 4096 rows, {order}",
                nbytes=source.nbytes + source[:4096].nbytes,
                seconds=seconds(
                    lambda: scatter_rows(source, repeated, 4096, deterministic=deterministic),  # noqa: B023
                    device,
                ),
                beside="index_add_ in bf16",
                beside_seconds=seconds(
                    lambda: torch.zeros_like(source[:4096]).index_add_(0, repeated, source), device
                ),
            )
        )
    return figures
