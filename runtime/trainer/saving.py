"""Weights on disk and their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flowgraph.ir.errors import RunFailed
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


def load(module: nn.Module, path: str | Path) -> None:
    """Copy what `save` wrote into the parameters, in place. Raises RunFailed when it differs."""
    saved, into = load_file(str(path)), parameters(module)
    if saved.keys() != into.keys() or any(saved[n].shape != t.shape for n, t in into.items()):
        raise RunFailed(
            f"{path} holds other parameters than {type(module).__name__}",
            hint="resume with the plan that the run was started with",
        )
    for name, tensor in into.items():
        tensor.copy_(saved[name])


def save_optimizer(optimizer: torch.optim.Optimizer, path: str | Path) -> None:
    """The state of an optimizer over one flat parameter, as safetensors."""
    state: dict[str, Any] = next(iter(optimizer.state.values()), {})
    tensors = {name: torch.as_tensor(value).cpu().clone() for name, value in state.items()}
    save_file(tensors, str(path))


def load_optimizer(optimizer: torch.optim.Optimizer, path: str | Path) -> None:
    """Inverse of `save_optimizer`."""
    saved = load_file(str(path))
    parameter = optimizer.param_groups[0]["params"][0]
    if saved:
        optimizer.state[parameter] = {
            name: value.to(parameter.device if value.dim() else "cpu")
            for name, value in saved.items()
        }


def _octets(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
