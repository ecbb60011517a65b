"""Reference models. Importing this package imports no torch: factories import it when called."""

from flowgraph.models.descriptions import describe
from flowgraph.models.factories import (
    decoder,
    hf_causal_lm,
    hf_tokenizer,
    hf_vision_tower,
    vit,
)
from flowgraph.models.patches import ImagePatches, patchify

__all__ = [
    "ImagePatches",
    "decoder",
    "describe",
    "hf_causal_lm",
    "hf_tokenizer",
    "hf_vision_tower",
    "patchify",
    "vit",
]
