"""Packs, gathers, log-probabilities, flat buffers: Triton on accelerators, torch on the CPU.

Importing this imports torch and numpy, never Triton; the first launch on a device does.
"""

from flowgraph.kernels.flat import (
    FlatEntry,
    digest128,
    flat_layout,
    flat_nbytes,
    flatten,
    unflatten_,
)
from flowgraph.kernels.layout import PackLayout, PackPlan
from flowgraph.kernels.logprobs import gather_logprobs, linear_logprobs
from flowgraph.kernels.merge import PlaceholderMismatch, find_placeholders, merge_features
from flowgraph.kernels.pack import Packed, pack, unpack
from flowgraph.kernels.ragged import Ragged
from flowgraph.kernels.rows import Pages, gather_rows, scatter_rows, write_rows_
from flowgraph.kernels.segments import group_statistics, segment_reduce

__all__ = [
    "FlatEntry",
    "PackLayout",
    "PackPlan",
    "Packed",
    "Pages",
    "PlaceholderMismatch",
    "Ragged",
    "digest128",
    "find_placeholders",
    "flat_layout",
    "flat_nbytes",
    "flatten",
    "gather_logprobs",
    "gather_rows",
    "group_statistics",
    "linear_logprobs",
    "merge_features",
    "pack",
    "scatter_rows",
    "segment_reduce",
    "unflatten_",
    "unpack",
    "write_rows_",
]
