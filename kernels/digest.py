"""The 128-bit digest of a buffer: what it is. NOT cryptographic: it finds accidents, not attacks.

    buffer   little-endian 32-bit words u_i, zeros after the last byte, blocks of 2048 words
    h_k(b)   = sum over j of u(b, j) * KEYS[k][j]                      mod 2^64, k = 0, 1
    d_k      = mix( bytes * ODD[k] + sum over b of mix(h_k(b) + (b + 1) * ODD[k]) )     mod 2^64

KEYS are splitmix64 outputs, `mix` is its finaliser. A block is a multilinear hash: for keys drawn
at random, blocks that differ collide in one lane with probability 2^-32 at most, in both 2^-64.
Integer sums are the same in any order, so every device and every split of the work gives the same
digest. The order of words and of blocks matters; so does the length.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 8192
BLOCK_WORDS = BLOCK_BYTES // 4
GOLDEN = 0x9E3779B97F4A7C15
ODD = (GOLDEN, 0xC2B2AE3D27D4EB4F)
MASK = 2**64 - 1


def mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser, elementwise: a bijection of 64-bit values."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = value ^ (value >> np.uint64(31))
    return mixed


def _keys() -> NDArray[np.uint64]:
    """uint64 [2, 2048]: lane k, word j is splitmix64's output number k * 2048 + j + 1."""
    counter = np.arange(1, 2 * BLOCK_WORDS + 1, dtype=np.uint64)
    spread: NDArray[np.uint64] = counter * np.uint64(GOLDEN)
    return mix(spread).reshape(2, BLOCK_WORDS)


KEYS = _keys()


def finish(block_hashes: NDArray[np.uint64], nbytes: int) -> int:
    """The digest, 0 <= d < 2^128, from every block's two sums (uint64 [blocks, 2])."""
    number: NDArray[np.uint64] = np.arange(1, block_hashes.shape[0] + 1, dtype=np.uint64)
    lanes = []
    for lane, odd in enumerate(ODD):
        placed: NDArray[np.uint64] = block_hashes[:, lane] + number * np.uint64(odd)
        mixed = mix(placed)
        total = (int(mixed.sum(dtype=np.uint64)) + nbytes * odd) & MASK
        lanes.append(int(mix(np.array([total], dtype=np.uint64))[0]))
    return lanes[0] << 64 | lanes[1]
