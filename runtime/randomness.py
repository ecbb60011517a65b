"""Randomness keyed by identity: who draws, when and where never changes what is drawn.

Guarantee: everything here is a function of the arguments alone, equal on every machine and for
every version of numpy: only the raw 64-bit words of Philox (Salmon et al., SC'11) are used where
reproducibility matters, whose definition is fixed, and no distribution of numpy's Generator.
"""

import operator

import msgpack
import numpy as np
import xxhash
from numpy.typing import NDArray

KEY_BYTES = 16

_WORD = (1 << 64) - 1
_UNIT = np.float64(2.0**-53)


def key(*parts: int | str | bytes) -> bytes:
    """The 16 bytes that identify a draw, such as `key(seed, "order", epoch)`.

    Parts of different type differ (`1` is not `"1"`), and so do different splits of one text.
    Raises TypeError for anything that is neither integer, text nor bytes.
    """
    for part in parts:
        if not isinstance(part, str | bytes):
            operator.index(part)
    packed: bytes = msgpack.packb(parts, default=operator.index)  # numpy integers included
    return xxhash.xxh3_128_digest(packed)


def generator(identity: bytes) -> np.random.Generator:
    """A generator of its own for one identity made by `key`.

    Its distributions are numpy's and may change with numpy's version; `uniforms` and `order` do
    not.
    """
    return np.random.Generator(np.random.Philox(key=_integer(identity)))


def order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The permutation int64 [size] in which an epoch reads a source of `size` samples."""
    words = np.random.Philox(key=_integer(key(seed, "order", epoch))).random_raw(size)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


class UniformSource:
    """Draws uniforms for many identities; one bit generator, since making one costs 10 µs."""

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._state = self._philox.state

    def draw(self, identity: bytes, count: int) -> NDArray[np.float64]:
        """The first `count` uniforms in [0, 1) of an identity, float64 [count].

        A longer draw starts with the shorter one.
        """
        integer = _integer(identity)
        self._state["state"]["key"][:] = (integer & _WORD, integer >> 64)
        self._philox.state = self._state
        words = self._philox.random_raw(count) >> np.uint64(11)
        return words.astype(np.float64) * _UNIT


def _integer(identity: bytes) -> int:
    if len(identity) != KEY_BYTES:
        raise ValueError(f"an identity has {KEY_BYTES} bytes, got {len(identity)}")
    return int.from_bytes(identity, "little")
