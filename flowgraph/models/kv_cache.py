"""A fixed block of key-value memory: `slots` sequences of at most `max_length` tokens.

Guarantee: shapes never change, so a row's result is bit-identical whichever slot it is in and
whatever the other slots hold. What lies beyond a row's length is stale but finite, and masked.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValues:
    """Keys and values that a prefill made: [layers, P, kv heads, L, head width] each."""

    keys: Tensor
    values: Tensor

    def rows(self, index: Tensor | slice) -> "KeyValues":
        """Those of some prompts only, `index` int64."""
        return KeyValues(keys=self.keys[:, index], values=self.values[:, index])


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCache:
    """Keys and values of all slots: [layers, slots, kv heads, max_length, head width] each."""

    keys: Tensor
    values: Tensor

    @property
    def slots(self) -> int:
        return self.keys.shape[1]

    @property
    def max_length(self) -> int:
        return self.keys.shape[3]

    @property
    def bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def write(self, slots: Tensor, kv: KeyValues) -> None:
        """Put each prefilled row in its slot; `slots` int64 [P], no slot named twice.

        Raises ValueError when the rows are longer than the cache.
        """
        length = kv.keys.shape[3]
        if length > self.max_length:
            raise ValueError(f"prefill of {length} tokens in a cache of {self.max_length}")
        self.keys[:, slots, :, :length] = kv.keys
        self.values[:, slots, :, :length] = kv.values

    def append(self, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write one token a slot; `positions` int64 [S], keys and values [S, kv heads, width]."""
        index = positions[:, None, None, None].expand(-1, keys.shape[1], 1, keys.shape[2])
        self.keys[layer].scatter_(2, index, keys.unsqueeze(2))
        self.values[layer].scatter_(2, index, values.unsqueeze(2))

    def narrow(self, rows: int) -> "KVCache":
        """A view of the first `rows` slots."""
        return KVCache(keys=self.keys[:, :rows], values=self.values[:, :rows])

    def move(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` positions of slots `sources` int64 [n] to `targets`."""
        self.keys[:, targets, :, :length] = self.keys[:, sources, :, :length]
        self.values[:, targets, :, :length] = self.values[:, sources, :, :length]
