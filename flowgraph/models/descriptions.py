"""What the compiler may ask of a model without torch: its shape and exact size as plain data."""

from collections.abc import Mapping
from typing import Any

from flowgraph.models.configs import DecoderConfig, ViTConfig
from flowgraph.models.hf_files import read_shape

FACTORIES = "flowgraph.models.factories"

IMAGE_FIELDS = ("patches", "rows", "cols")
"""What vision towers read: patches [F, pixels] and where each lies, as `patchify` makes them."""


def describe(factory: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the module that `factory` ("module:qualname") makes from `params`.

    Always has `kind` ("decoder", "vit" or "generic") and `parameters` (exact; None for a generic
    module, whose size only a run of `profile` knows). Decoders add layers, width, heads, kv_heads,
    hidden, vocab, max_length, head_width, tied; vision towers layers, width, heads, hidden, patch,
    merge, out_width, and `inputs`, the fields that they read. Raises ValueError or TypeError for
    parameters the factory would refuse.
    """
    if factory == f"{FACTORIES}:decoder":
        return _describe_decoder(DecoderConfig(**params))
    if factory == f"{FACTORIES}:vit":
        return _describe_vit(ViTConfig(**params))
    if factory == f"{FACTORIES}:hf_causal_lm":
        return _describe_hf(params)
    if factory == f"{FACTORIES}:hf_vision_tower":
        return {"kind": "generic", "parameters": None, "inputs": IMAGE_FIELDS}
    return {"kind": "generic", "parameters": None}


def _describe_hf(params: Mapping[str, Any]) -> dict[str, Any]:
    shape = read_shape(params["path"], params.get("gguf_file"))
    feature_width = params.get("feature_width")
    if feature_width is not None and shape["parameters"] is not None:
        shape["parameters"] += feature_width + shape["width"] * (feature_width + 1)
    return {"kind": "decoder", "feature_width": feature_width, **shape}


def _describe_decoder(config: DecoderConfig) -> dict[str, Any]:
    return {
        "kind": "decoder",
        "parameters": config.parameters,
        "layers": config.layers,
        "width": config.width,
        "heads": config.heads,
        "kv_heads": config.shared_heads,
        "head_width": config.head_width,
        "hidden": config.feed_forward,
        "vocab": config.vocab,
        "outputs": config.spoken,
        "max_length": config.max_length,
        "tied": config.tied,
        "feature_width": config.feature_width,
    }


def _describe_vit(config: ViTConfig) -> dict[str, Any]:
    return {
        "kind": "vit",
        "parameters": config.parameters,
        "layers": config.layers,
        "width": config.width,
        "heads": config.heads,
        "hidden": config.feed_forward,
        "patch": config.patch,
        "merge": config.merge,
        "channels": config.channels,
        "out_width": config.feature_width,
        "inputs": IMAGE_FIELDS,
    }
