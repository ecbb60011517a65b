"""Weights on disk and their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from flowgraph.runtime.weights import parameters


def weights_digest(module: nn.Module) -> str:
    """sha256 (hex) over name, dtype, shape and bytes of the parameters, in the order of names."""
    digest = hashlib.sha256()
    for name, tensor in parameters(module).items():
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(_octets(tensor).numpy().tobytes())
    return digest.hexdigest()


def save(module: nn.Module, path: str | Path) -> None:
    """Parameters by name as safetensors, written beside `path` and moved there when complete."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    # Copies: the parameters share one buffer, which the format would refuse.
    tensors = {name: tensor.cpu().clone() for name, tensor in parameters(module).items()}
    save_file(tensors, str(partial))
    partial.replace(target)


def _octets(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
