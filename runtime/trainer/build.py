"""Modules from their declarations: the same weights in the gang and in every engine."""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import nn

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Module
from flowgraph.ir.types import DTYPES
from flowgraph.runtime.functions import load
from flowgraph.runtime.randomness import key


def build_module(declared: Module, root: str, seed: int, *, exact: bool = False) -> nn.Module:
    """The module with its initial weights, in its declared dtype, on the CPU.

    Weights depend on (`seed`, the name of the module or of the one it starts as, the factory and
    its parameters) alone; torch's global generator is left as it was. The module is in eval mode:
    dropout would draw numbers that depend on who runs it. Raises GraphError when the factory gives
    no module, and whatever it raises itself.
    """
    factory = load(declared.factory, root, exact=exact)
    first = declared.starts_as or declared.name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(key(seed, "module", first)[:8], "little") >> 1)
        module = factory(**declared.factory.params)
    if not isinstance(module, nn.Module):
        raise GraphError(
            f"module '{declared.name}': factory {declared.factory} expects to return a torch "
            f"module, got {type(module).__name__}",
            at=declared.at,
        )
    return module.to(_dtype(declared)).eval()


def select_trainable(module: nn.Module, declared: Module) -> tuple[str, ...]:
    """Marks the parameters that train and freezes all others; names of the former, sorted.

    Raises GraphError for a pattern that names no parameter.
    """
    names = sorted(name for name, _ in module.named_parameters())
    patterns = declared.trainable
    if patterns == ():
        raise GraphError(
            f"module '{declared.name}': no trainable pattern is given",
            at=declared.at,
            hint="trainable=False",
        )
    if isinstance(patterns, bool):
        chosen = set(names) if patterns else set()
    else:
        found = {p: [name for name in names if fnmatchcase(name, p)] for p in patterns}
        for pattern, matches in found.items():
            if not matches:
                raise GraphError(
                    f"module '{declared.name}': trainable pattern {pattern!r} names no parameter; "
                    f"there are {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}",
                    at=declared.at,
                )
        chosen = {name for matches in found.values() for name in matches}
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in chosen)
    return tuple(sorted(chosen))


def _dtype(declared: Module) -> torch.dtype:
    dtype = getattr(torch, declared.dtype, None) if declared.dtype in DTYPES else None
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise GraphError(
            f"module '{declared.name}': dtype {declared.dtype!r} is no floating dtype",
            at=declared.at,
            hint="float32 or bfloat16",
        )
    return dtype
