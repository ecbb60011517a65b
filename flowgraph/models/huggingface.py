"""Hugging Face causal language models behind our decoder's interface (transformers 5.24 or later).

Guarantees: nothing is fetched, only local folders are read; the weights are float32; attention is
torch's scaled-dot-product with our masks as they are, so that packed segments are isolated and a
slot's stale memory is never seen. Models whose layers are all full attention only.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from flowgraph.models.attention import segment_mask
from flowgraph.models.decoder_lm import feature_projector, put_features
from flowgraph.models.hf_files import split_gguf
from flowgraph.models.kv_cache import KeyValues, KVCache


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers has no type stubs
    """One layer of our cache as transformers sees it: an update appends one token a slot."""

    def __init__(self, cache: KVCache, layer: int, positions: Tensor, span: int) -> None:
        super().__init__()
        self.cache, self.layer, self.positions, self.span = cache, layer, positions, span
        self.keys, self.values = cache.keys[layer], cache.values[layer]
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [S, K, 1, D] and return what attention may read: [S, K, span, D]."""
        self.cache.append(self.layer, self.positions, key_states[:, :, 0], value_states[:, :, 0])
        return self.keys[:, :, : self.span], self.values[:, :, : self.span]

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the memory exists."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.span, 0

    def get_seq_length(self) -> int:
        return self.span

    def get_max_length(self) -> int:
        return self.cache.max_length


class HuggingFaceLM(nn.Module):
    """The interface of `DecoderLM` over a transformers causal language model."""

    def __init__(self, model: Any, feature_width: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.max_length = int(model.config.max_position_embeddings)
        width = int(model.config.hidden_size)
        self.projector = None if feature_width is None else feature_projector(feature_width, width)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        segment_ids: Tensor,
        features: Tensor | None = None,
        feature_index: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [R, L, width] of packed rows; arguments as `DecoderLM.forward`."""
        x = self.model.get_input_embeddings()(tokens)
        x = put_features(x, self.projector, features, feature_index)
        result = self.model.get_decoder()(
            inputs_embeds=x,
            position_ids=positions,
            attention_mask=segment_mask(segment_ids, causal=True),
            use_cache=False,
        )
        return cast(Tensor, result.last_hidden_state)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] from hidden states [..., width]."""
        return functional.linear(hidden, self.unembedding())

    def unembedding(self) -> Tensor:
        """The matrix [V, width] that `logits` multiplies with."""
        return cast(Tensor, self.model.get_output_embeddings().weight)

    def new_cache(self, slots: int, max_length: int) -> KVCache:
        """An empty cache, on the model's device and in its dtype."""
        if max_length > self.max_length:
            raise ValueError(
                f"hf_causal_lm: a cache of {max_length} tokens exceeds max_length {self.max_length}"
            )
        config, like = self.model.config, self.unembedding()
        heads = config.num_key_value_heads or config.num_attention_heads
        width = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        shape = (config.num_hidden_layers, slots, heads, max_length, width)
        return KVCache(keys=like.new_zeros(shape), values=like.new_zeros(shape))

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, KeyValues]:
        """Logits [P, V] after each prompt, and the prompts' keys and values; as `DecoderLM`."""
        made = DynamicCache()
        result = self.model.get_decoder()(input_ids=tokens, cache=made, use_cache=True)
        rows = torch.arange(len(tokens), device=tokens.device)
        kv = KeyValues(
            keys=torch.stack([layer.keys for layer in made.layers]),
            values=torch.stack([layer.values for layer in made.layers]),
        )
        return self.logits(result.last_hidden_state[rows, lengths - 1]), kv

    @torch.no_grad()
    def decode(
        self, tokens: Tensor, positions: Tensor, cache: KVCache, span: int | None = None
    ) -> Tensor:
        """Logits [S, V] after one more token in every slot; as `DecoderLM.decode`."""
        seen = cache.max_length if span is None else span
        mask = torch.arange(seen, device=positions.device) <= positions[:, None, None, None]
        layers = [SlotLayer(cache, layer, positions, seen) for layer in range(len(cache.keys))]
        result = self.model.get_decoder()(
            input_ids=tokens[:, None],
            position_ids=positions[:, None],
            attention_mask=mask,
            cache=Cache(layers=layers),
            use_cache=True,
        )
        return self.logits(result.last_hidden_state[:, 0])


def load_causal_lm(path: str, gguf_file: str | None, feature_width: int | None) -> HuggingFaceLM:
    """Load weights from the folder `path`, or from a GGUF file (in it, or `path` itself).

    Raises FileNotFoundError for a missing path and ValueError for a model that mixes in sliding
    or linear attention, which our masks do not describe.
    """
    folder, gguf = split_gguf(path, gguf_file)
    if not Path(folder).exists():
        raise FileNotFoundError(f"hf_causal_lm: no such folder: {folder}")
    options = {"gguf_file": gguf} if gguf else {}
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="sdpa",
        local_files_only=True,
        **options,
    )
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ValueError(f"hf_causal_lm: only full attention is supported, {path} has {kinds}")
    return HuggingFaceLM(model, feature_width)
