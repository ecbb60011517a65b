"""What a Hugging Face folder or a GGUF file says about its model, read without torch.

Headers only: a compile must not wait seconds for `gguf`, which reads every token of a vocabulary
into objects to answer how many there are.
"""

import json
import math
import struct
from pathlib import Path
from typing import Any, BinaryIO

# Value types of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: code -> struct format.
GGUF_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
GGUF_SCALARS |= {10: "Q", 11: "q", 12: "d"}
GGUF_STRING, GGUF_ARRAY = 8, 9


def split_gguf(path: str, gguf_file: str | None) -> tuple[str, str | None]:
    """(folder, GGUF file name or None); `path` may itself be a .gguf file."""
    if gguf_file is None and path.endswith(".gguf"):
        return str(Path(path).parent), Path(path).name
    return path, gguf_file


def read_shape(path: str, gguf_file: str | None = None) -> dict[str, Any]:
    """layers, width, heads, kv_heads, head_width, hidden, vocab, max_length, tied, parameters.

    `parameters` is exact, or None where the weights are neither safetensors nor GGUF. Raises
    FileNotFoundError for a missing file and ValueError for one that is no GGUF.
    """
    folder, gguf = split_gguf(path, gguf_file)
    if gguf is not None:
        return _gguf_shape(Path(folder) / gguf)
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
            (length,) = _unpack(stream, "Q")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        total += sum(math.prod(tensor["shape"]) for tensor in header.values())
    return total


def _gguf_shape(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        fields, shapes = _read_gguf(stream)
    family = fields["general.architecture"]
    heads = fields[f"{family}.attention.head_count"]
    width = fields[f"{family}.embedding_length"]
    return {
        "layers": fields[f"{family}.block_count"],
        "width": width,
        "heads": heads,
        "kv_heads": fields.get(f"{family}.attention.head_count_kv", heads),
        "head_width": fields.get(f"{family}.attention.key_length", width // heads),
        "hidden": fields[f"{family}.feed_forward_length"],
        "vocab": shapes["token_embd.weight"][-1],
        "max_length": fields[f"{family}.context_length"],
        "tied": "output.weight" not in shapes,
        # Tables of RoPE factors are stored like weights, but nobody trains them.
        "parameters": sum(math.prod(s) for n, s in shapes.items() if not n.startswith("rope_")),
    }


def _read_gguf(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The metadata (arrays as their lengths) and the shape of every tensor."""
    magic, version = stream.read(4), _unpack(stream, "I")[0]
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"{stream.name} is not a GGUF file of version 2 or 3")
    tensors, count = _unpack(stream, "QQ")
    fields = {_read_string(stream): _read_value(stream) for _ in range(count)}
    shapes = {}
    for _ in range(tensors):
        name = _read_string(stream)
        (rank,) = _unpack(stream, "I")
        shapes[name] = list(_unpack(stream, f"{rank}Q"))
        stream.seek(12, 1)  # its type (4 bytes) and where its data begins (8)
    return fields, shapes


def _read_value(stream: BinaryIO, kind: int | None = None) -> Any:
    if kind is None:
        (kind,) = _unpack(stream, "I")
    if kind == GGUF_STRING:
        return _read_string(stream)
    if kind == GGUF_ARRAY:
        inner, length = _unpack(stream, "IQ")
        if inner in GGUF_SCALARS:
            stream.seek(length * struct.calcsize(GGUF_SCALARS[inner]), 1)
        else:
            for _ in range(length):
                _read_value(stream, inner)
        return length
    if kind not in GGUF_SCALARS:
        raise ValueError(f"{stream.name} has a GGUF value of unknown type {kind}")
    return _unpack(stream, GGUF_SCALARS[kind])[0]


def _read_string(stream: BinaryIO) -> str:
    return stream.read(_unpack(stream, "Q")[0]).decode()


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    data = stream.read(struct.calcsize(layout))
    if len(data) < struct.calcsize(layout):
        raise ValueError(f"{stream.name} ends inside its header")
    return struct.unpack(layout, data)
