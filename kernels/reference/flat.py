"""Flat copy and its digest with torch and numpy: the reference and the path on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.kernels.digest import BLOCK_BYTES, BLOCK_WORDS, KEYS, finish
from flowgraph.kernels.flat import ALIGN, FlatEntry

# Blocks widened to 64 bit at once: 16 of them (256 KiB) stay in a core's L2.
BLOCKS_AT_ONCE = 16


def flatten(tensors: Sequence[Tensor], layout: Sequence[FlatEntry], buffer: Tensor) -> int:
    """Writes the tensors to `buffer` (uint8), zeros between them; returns the digest."""
    for tensor, entry in zip(tensors, layout, strict=True):
        end = entry.offset + entry.nbytes
        buffer[end : end + -end % ALIGN] = 0
        _view(buffer, entry).copy_(tensor)
    return digest(buffer)


def unflatten(
    buffer: Tensor, tensors: Sequence[Tensor], layout: Sequence[FlatEntry], expect: int | None
) -> int:
    """Writes `buffer` to the tensors, unless its digest, which is returned, is not `expect`."""
    found = digest(buffer)
    if expect is None or found == expect:
        for tensor, entry in zip(tensors, layout, strict=True):
            tensor.copy_(_view(buffer, entry))
    return found


def digest(octets: Tensor) -> int:
    """The digest of uint8 [N]."""
    data: NDArray[np.uint8] = octets.numpy()
    whole = data.size // BLOCK_BYTES
    blocks = data[: whole * BLOCK_BYTES].view("<u4").reshape(whole, BLOCK_WORDS)
    rest = data[whole * BLOCK_BYTES :]
    hashes = np.empty((whole + bool(rest.size), 2), dtype=np.uint64)
    for begin in range(0, whole, BLOCKS_AT_ONCE):
        _hash(blocks[begin : begin + BLOCKS_AT_ONCE], hashes[begin : begin + BLOCKS_AT_ONCE])
    if rest.size:
        last = np.zeros(BLOCK_BYTES, dtype=np.uint8)
        last[: rest.size] = rest
        _hash(last.view("<u4")[None], hashes[whole:])
    return finish(hashes, data.size)


def _hash(blocks: NDArray[np.uint32], hashes: NDArray[np.uint64]) -> None:
    """Writes both lanes' sums of every block; products and sums wrap at 2^64."""
    words = blocks.astype(np.uint64)
    hashes[: len(words), 0] = words @ KEYS[0]
    hashes[: len(words), 1] = words @ KEYS[1]


def _view(buffer: Tensor, entry: FlatEntry) -> Tensor:
    octets = buffer[entry.offset : entry.offset + entry.nbytes]
    return octets.view(entry.dtype).view(entry.shape)
