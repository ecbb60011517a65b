"""A decoder language model in plain torch, for packed training and slot-wise decoding.

Blocks as in Llama (Touvron et al., arXiv 2302.13971) with grouped-query attention (Ainslie et al.,
arXiv 2305.13245) and SwiGLU (Shazeer, arXiv 2002.05202).
Legend: R rows, L positions of a row, P prompts, S slots, V vocabulary, F foreign features.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from flowgraph.kernels import merge_features
from flowgraph.models.attention import attend, rotary_table, rotate, segment_mask
from flowgraph.models.configs import DecoderConfig
from flowgraph.models.kv_cache import KeyValues, KVCache


class Attention(nn.Module):
    """Grouped-query self-attention; one matrix makes queries, keys and values."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.shared_heads
        self.head_width = config.head_width
        heads = config.heads + 2 * config.shared_heads
        self.qkv = nn.Linear(config.width, heads * config.head_width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, H, L, D], keys and values [R, K, L, D], queries and keys turned by RoPE."""
        rows, length, _ = x.shape
        heads = self.qkv(x).view(rows, length, -1, self.head_width)
        turned = rotate(heads[:, :, : self.heads + self.kv_heads], cos, sin)
        q, k = turned[:, :, : self.heads], turned[:, :, self.heads :]
        v = heads[:, :, self.heads + self.kv_heads :]
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate x) * up x)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.width, 2 * config.feed_forward, bias=False)
        self.down = nn.Linear(config.feed_forward, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return cast(Tensor, self.down(functional.silu(gate) * up))


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each added to the stream."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.feed_forward = FeedForward(config)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.attention.project(self.attention_norm(x), cos, sin)

    def add(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The stream after this block, `mixed` being what attention returned."""
        x = x + self.attention.out(mixed)
        return x + cast(Tensor, self.feed_forward(self.feed_forward_norm(x)))


class DecoderLM(nn.Module):
    """The model. Training calls `forward`, `logits`; rollout `prefill`, `decode`.

    Initial weights come from torch's global generator, in a fixed order.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = None if config.tied else nn.Linear(config.width, config.spoken, bias=False)
        feature_width = config.feature_width
        self.projector = (
            None if feature_width is None else feature_projector(feature_width, config.width)
        )
        cos, sin = rotary_table(config.max_length, config.head_width, config.rope_base)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        initialise(self, config.init_std)
        nn.init.normal_(self.embedding.weight, std=config.embedding_std)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        segment_ids: Tensor,
        features: Tensor | None = None,
        feature_index: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [R, L, width] of packed rows.

        `tokens`, `positions` int64 [R, L]; `segment_ids` int32 [R, L], 0 for padding: a position
        sees earlier positions of its own segment only. `features` [F, feature width] go through
        the projector and replace the embeddings at `feature_index` int64 [F], flat in R * L.
        """
        x = put_features(self.embedding(tokens), self.projector, features, feature_index)
        cos, sin = self.cos[positions], self.sin[positions]
        mask = segment_mask(segment_ids, causal=True)
        for block in self._blocks():
            q, k, v = block.project(x, cos, sin)
            x = block.add(x, attend(q, k, v, mask))
        return cast(Tensor, self.norm(x))

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] from hidden states [..., width]."""
        return functional.linear(hidden, self.unembedding())

    @property
    def vocab(self) -> int:
        """Ids that may be read; `outputs` may allow fewer to be said."""
        return self.config.vocab

    def unembedding(self) -> Tensor:
        """The matrix [V, width] that `logits` multiplies with, for fused losses."""
        if self.head is not None:
            return self.head.weight
        return self.embedding.weight[: self.config.spoken]

    def new_cache(self, slots: int, max_length: int) -> KVCache:
        """An empty cache, on the model's device and in its dtype."""
        if max_length > self.config.max_length:
            raise ValueError(
                f"decoder: a cache of {max_length} tokens exceeds max_length {len(self.cos)}"
            )
        config, like = self.config, self.embedding.weight
        shape = (config.layers, slots, config.shared_heads, max_length, config.head_width)
        return KVCache(keys=like.new_zeros(shape), values=like.new_zeros(shape))

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, KeyValues]:
        """Logits [P, V] after each prompt's last token, and all prompts' keys and values.

        `tokens` int64 [P, L], padded on the right with anything; `lengths` int64 [P], >= 1.
        """
        length = tokens.shape[1]
        cos = self.cos[:length].expand(len(tokens), -1, -1)
        sin = self.sin[:length].expand(len(tokens), -1, -1)
        x = cast(Tensor, self.embedding(tokens))
        keys, values = [], []
        for block in self._blocks():
            q, k, v = block.project(x, cos, sin)
            keys.append(k)
            values.append(v)
            # Causal alone: what stands right of a prompt is never seen from inside it.
            x = block.add(x, attend(q, k, v, None))
        last = x[torch.arange(len(tokens), device=x.device), lengths - 1]
        kv = KeyValues(keys=torch.stack(keys), values=torch.stack(values))
        return self.logits(self.norm(last)), kv

    @torch.no_grad()
    def decode(
        self, tokens: Tensor, positions: Tensor, cache: KVCache, span: int | None = None
    ) -> Tensor:
        """Logits [S, V] after one more token in every slot, which joins the cache.

        `tokens`, `positions` int64 [S]: each slot's newest token and where it stands (its length
        so far). Free slots are decoded too: give any token at position 0; the row is garbage and
        the slot's next prefill overwrites what it wrote. `span` limits attention to the first
        `span` positions, which must cover all of `positions`: faster, but rows are bit-identical
        only between calls of one span.
        """
        seen = cache.max_length if span is None else span
        cos, sin = self.cos[positions, None], self.sin[positions, None]
        mask = torch.arange(seen, device=positions.device) <= positions[:, None, None, None]
        x = cast(Tensor, self.embedding(tokens)).unsqueeze(1)
        for layer, block in enumerate(self._blocks()):
            q, k, v = block.project(x, cos, sin)
            cache.append(layer, positions, k[:, :, 0], v[:, :, 0])
            keys, values = cache.keys[layer, :, :, :seen], cache.values[layer, :, :, :seen]
            x = block.add(x, attend(q, keys, values, mask))
        return self.logits(cast(Tensor, self.norm(x[:, 0])))

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))


def feature_projector(feature_width: int, width: int) -> nn.Module:
    """From an encoder's features to embeddings; on the decoder's side, so that it is trained even
    when the encoder is frozen."""
    return nn.Sequential(nn.RMSNorm(feature_width, eps=1e-5), nn.Linear(feature_width, width))


def put_features(
    embeddings: Tensor,
    projector: nn.Module | None,
    features: Tensor | None,
    feature_index: Tensor | None,
) -> Tensor:
    """Embeddings [R, L, width] with projected features [F, feature width] in the flat places.

    Raises ValueError when there are features but no projector.
    """
    if features is None or feature_index is None:
        return embeddings
    if projector is None:
        raise ValueError("features need a decoder made with feature_width=...")
    projected = projector(features).to(embeddings.dtype)
    merged = merge_features(embeddings.flatten(0, 1), projected, feature_index)
    return merged.view_as(embeddings)


def initialise(module: nn.Module, std: float | None) -> None:
    """Draw every linear map anew: deviation `std`, by default 1/sqrt(fan-in); biases are 0."""
    for child in module.modules():
        if isinstance(child, nn.Linear):
            nn.init.normal_(child.weight, std=child.in_features**-0.5 if std is None else std)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
