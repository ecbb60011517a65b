"""Shapes of the reference models as plain data, checked when made.

The factories build modules from these, and `describe` answers the compiler's questions from the
same objects, so that the two cannot disagree. Nothing here imports torch.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder language model: RMSNorm, RoPE, grouped-query attention, SwiGLU.

    `kv_heads` defaults to `heads`; `hidden` (the feed-forward width) to 8/3 of `width`, rounded up
    to a multiple of 8; `max_length` bounds positions. `init_std` is the deviation of every matrix,
    by default 1/sqrt(fan-in); `embedding_std` that of the embedding table. `feature_width` is the
    width of foreign features (an encoder's output); with it the decoder owns a projector.
    `outputs` limits what the model can say to the first so many ids (default: all of `vocab`): a
    judge that reads everything but answers with a few tokens needs no others to be unlearned.
    """

    vocab: int
    layers: int
    width: int
    heads: int
    kv_heads: int | None = None
    hidden: int | None = None
    max_length: int = 512
    tied: bool = True
    init_std: float | None = None
    embedding_std: float = 0.02
    rope_base: float = 10_000.0
    feature_width: int | None = None
    outputs: int | None = None

    def __post_init__(self) -> None:
        _require_positive("decoder", vocab=self.vocab, layers=self.layers, width=self.width)
        _require_positive("decoder", heads=self.heads, max_length=self.max_length)
        _require_positive("decoder", kv_heads=self.shared_heads, hidden=self.feed_forward)
        _require_divisible("decoder", "width", self.width, "2 * heads", 2 * self.heads)
        _require_divisible("decoder", "heads", self.heads, "kv_heads", self.shared_heads)
        if self.feature_width is not None:
            _require_positive("decoder", feature_width=self.feature_width)
        if not 1 <= self.spoken <= self.vocab:
            raise ValueError(f"decoder: outputs must lie in 1..{self.vocab}, got {self.outputs}")

    @property
    def shared_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def feed_forward(self) -> int:
        """Width inside the feed-forward blocks."""
        return -(-8 * self.width // 24) * 8 if self.hidden is None else self.hidden

    @property
    def spoken(self) -> int:
        """Number of ids that logits cover."""
        return self.vocab if self.outputs is None else self.outputs

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Exact number of trainable scalars."""
        attention = self.width * self.head_width * (2 * self.heads + 2 * self.shared_heads)
        block = attention + 3 * self.width * self.feed_forward + 2 * self.width
        tables = self.width * (self.vocab + (0 if self.tied else self.spoken))
        projector = 0
        if self.feature_width is not None:
            projector = self.feature_width + self.width * (self.feature_width + 1)
        return tables + self.layers * block + self.width + projector


@dataclass(frozen=True, slots=True, kw_only=True)
class ViTConfig:
    """A native-resolution vision transformer over packed images.

    An image is cut in `patch` x `patch` squares of `channels` colours; `merge` x `merge`
    neighbours leave as one feature of `out_width` (default `width`). `hidden` defaults to four
    times `width`. `position_std` scales the two-dimensional sine-cosine positions.
    """

    layers: int
    width: int
    heads: int
    patch: int = 4
    merge: int = 2
    channels: int = 1
    hidden: int | None = None
    out_width: int | None = None
    init_std: float | None = None
    position_std: float = 0.2

    def __post_init__(self) -> None:
        _require_positive("vit", layers=self.layers, width=self.width, heads=self.heads)
        _require_positive("vit", patch=self.patch, merge=self.merge, channels=self.channels)
        _require_positive("vit", hidden=self.feed_forward, out_width=self.feature_width)
        _require_divisible("vit", "width", self.width, "4 * heads", 4 * self.heads)

    @property
    def feed_forward(self) -> int:
        """Width inside the feed-forward blocks."""
        return 4 * self.width if self.hidden is None else self.hidden

    @property
    def feature_width(self) -> int:
        """Width of what leaves the encoder."""
        return self.width if self.out_width is None else self.out_width

    @property
    def patch_values(self) -> int:
        """Scalars of one patch as it arrives."""
        return self.patch * self.patch * self.channels

    @property
    def parameters(self) -> int:
        """Exact number of trainable scalars."""
        embed = self.width * (self.patch_values + 1)
        block = 4 * self.width**2 + 2 * self.width * self.feed_forward + 2 * self.width
        merged = self.width * self.merge**2
        merger = self.width + merged**2 + merged + self.feature_width * (merged + 1)
        return embed + self.layers * block + merger


def _require_positive(factory: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{factory}: {name} must be at least 1, got {size}")


def _require_divisible(factory: str, name: str, size: int, by: str, divisor: int) -> None:
    if size % divisor:
        raise ValueError(f"{factory}: {name} ({size}) must be a multiple of {by} ({divisor})")
