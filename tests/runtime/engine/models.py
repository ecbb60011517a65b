"""Small decoders that the engine's tests roll out."""

from typing import cast

import torch
from torch import Tensor

from flowgraph.models.configs import DecoderConfig
from flowgraph.models.decoder_lm import DecoderLM
from flowgraph.models.kv_cache import KVCache

VOCAB = 17


class BlockCache:
    """A cache without `narrow` and `move`: the engine decodes whole blocks."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self.write = cache.write
        self.append = cache.append

    @property
    def keys(self) -> Tensor:
        return self._cache.keys

    @property
    def values(self) -> Tensor:
        return self._cache.values

    @property
    def slots(self) -> int:
        return self._cache.slots

    @property
    def max_length(self) -> int:
        return self._cache.max_length


class TrimmableDecoder(DecoderLM):
    """A decoder whose cache can be trimmed."""


class BlockDecoder(DecoderLM):
    """A decoder whose cache cannot be trimmed: the engine decodes whole blocks."""

    def new_cache(self, slots: int, max_length: int) -> KVCache:
        return cast(KVCache, BlockCache(super().new_cache(slots, max_length)))


def small(kind: type[DecoderLM], *, seed: int = 0, max_length: int = 64) -> DecoderLM:
    """2 layers x 32 with weights large enough that distributions are far from uniform."""
    torch.manual_seed(seed)
    config = DecoderConfig(
        vocab=VOCAB, layers=2, width=32, heads=4, kv_heads=2, max_length=max_length
    )
    module = kind(config)
    with torch.no_grad():
        module.embedding.weight.mul_(30.0)
    return module
