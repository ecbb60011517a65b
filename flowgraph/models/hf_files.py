"""What a Hugging Face folder or a GGUF file says about its model, read without torch."""

import json
import math
import struct
from pathlib import Path
from typing import Any


def split_gguf(path: str, gguf_file: str | None) -> tuple[str, str | None]:
    """(folder, GGUF file name or None); `path` may itself be a .gguf file."""
    if gguf_file is None and path.endswith(".gguf"):
        return str(Path(path).parent), Path(path).name
    return path, gguf_file


def read_shape(path: str, gguf_file: str | None = None) -> dict[str, Any]:
    """layers, width, heads, kv_heads, head_width, hidden, vocab, max_length, tied, parameters.

    `parameters` is exact, or None where the weights are not safetensors or GGUF. Raises
    FileNotFoundError for a folder without config.json.
    """
    folder, gguf = split_gguf(path, gguf_file)
    if gguf is not None:
        return _read_gguf(Path(folder) / gguf)
    config = json.loads((Path(folder) / "config.json").read_text())
    config = config.get("text_config", config)
    heads, width = config["num_attention_heads"], config["hidden_size"]
    return {
        "layers": config["num_hidden_layers"],
        "width": width,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_width": config.get("head_dim") or width // heads,
        "hidden": config["intermediate_size"],
        "vocab": config["vocab_size"],
        "max_length": config["max_position_embeddings"],
        "tied": bool(config.get("tie_word_embeddings", False)),
        "parameters": _count_safetensors(Path(folder)),
    }


def _count_safetensors(folder: Path) -> int | None:
    """Scalars in all safetensors files, from their headers: 8 bytes of length, then JSON."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    total = 0
    for file in files:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        total += sum(math.prod(tensor["shape"]) for tensor in header.values())
    return total


def _read_gguf(file: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    reader = GGUFReader(file)
    family = reader.get_field("general.architecture").contents()

    def value(name: str, default: Any = None) -> Any:
        found = reader.get_field(f"{family}.{name}")
        return default if found is None else found.contents()

    heads, width = value("attention.head_count"), value("embedding_length")
    shapes = {tensor.name: [int(n) for n in tensor.shape] for tensor in reader.tensors}
    return {
        "layers": value("block_count"),
        "width": width,
        "heads": heads,
        "kv_heads": value("attention.head_count_kv", heads),
        "head_width": value("attention.key_length", width // heads),
        "hidden": value("feed_forward_length"),
        "vocab": shapes["token_embd.weight"][-1],
        "max_length": value("context_length"),
        "tied": "output.weight" not in shapes,
        # Tables of RoPE factors are stored like weights, but nobody trains them.
        "parameters": sum(math.prod(s) for n, s in shapes.items() if not n.startswith("rope_")),
    }
