"""Factories of models and of their tokenizers: what a graph names and a worker calls.

A factory takes plain data by keyword and returns a module on the CPU in float32. Initial weights
come from torch's global generator: call `torch.manual_seed(seed)` before, and equal seeds and
parameters give equal weights. Torch is imported inside, so that a graph file needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowgraph.models.configs import DecoderConfig, ViTConfig

if TYPE_CHECKING:
    from flowgraph.models.decoder_lm import DecoderLM
    from flowgraph.models.huggingface import HuggingFaceLM
    from flowgraph.models.huggingface_tokenizer import HuggingFaceTokenizer
    from flowgraph.models.huggingface_vision import HuggingFaceVisionTower
    from flowgraph.models.vision_transformer import VisionTransformer


def decoder(
    *,
    vocab: int,
    layers: int,
    width: int,
    heads: int,
    kv_heads: int | None = None,
    hidden: int | None = None,
    max_length: int = 512,
    tied: bool = True,
    init_std: float | None = None,
    embedding_std: float = 0.02,
    rope_base: float = 10_000.0,
    feature_width: int | None = None,
    outputs: int | None = None,
) -> DecoderLM:
    """A decoder language model from scratch; `DecoderConfig` explains the parameters."""
    from flowgraph.models.decoder_lm import DecoderLM

    return DecoderLM(
        DecoderConfig(
            vocab=vocab,
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            hidden=hidden,
            max_length=max_length,
            tied=tied,
            init_std=init_std,
            embedding_std=embedding_std,
            rope_base=rope_base,
            feature_width=feature_width,
            outputs=outputs,
        )
    )


def vit(
    *,
    layers: int,
    width: int,
    heads: int,
    patch: int = 4,
    merge: int = 2,
    channels: int = 1,
    hidden: int | None = None,
    out_width: int | None = None,
    init_std: float | None = None,
    position_std: float = 0.2,
) -> VisionTransformer:
    """A native-resolution vision transformer from scratch; `ViTConfig` explains the parameters."""
    from flowgraph.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        ViTConfig(
            layers=layers,
            width=width,
            heads=heads,
            patch=patch,
            merge=merge,
            channels=channels,
            hidden=hidden,
            out_width=out_width,
            init_std=init_std,
            position_std=position_std,
        )
    )


def hf_causal_lm(
    *, path: str, gguf_file: str | None = None, feature_width: int | None = None
) -> HuggingFaceLM:
    """A Hugging Face causal language model from a local folder, never from the network.

    `gguf_file` names a GGUF file inside `path` to read the weights from (`path` may also be that
    file); `feature_width` adds a fresh projector for an encoder's features. Needs the `hf` extra.
    """
    from flowgraph.models.huggingface import load_causal_lm

    return load_causal_lm(path, gguf_file, feature_width)


def hf_vision_tower(*, path: str) -> HuggingFaceVisionTower:
    """The native-resolution vision tower of a Qwen-VL model in a local folder.

    Takes patches as `vit` does, cut with the tower's own patch size and merge. Needs the `hf`
    extra.
    """
    from flowgraph.models.huggingface_vision import load_vision_tower

    return load_vision_tower(path)


def hf_tokenizer(*, path: str, gguf_file: str | None = None) -> HuggingFaceTokenizer:
    """The tokenizer of a model in a local folder or GGUF file; arguments as `hf_causal_lm`.

    An agent takes it as `tokenizer=fg.model(hf_tokenizer, path=...)`. Needs the `hf` extra.
    """
    from flowgraph.models.huggingface_tokenizer import HuggingFaceTokenizer

    return HuggingFaceTokenizer(path, gguf_file)
