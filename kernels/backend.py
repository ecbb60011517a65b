"""Which path a call takes: Triton where the tensors are on an accelerator, torch on the CPU.

Triton itself is imported by the first launch, never by `import flowgraph.kernels`.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType
from typing import Any

from torch import Tensor
from torch.autograd import Function


def launches_kernels(tensor: Tensor) -> bool:
    """True where the Triton kernel is launched for `tensor`.

    CPU tensors launch it only in a process where Triton's own switch `TRITON_INTERPRET=1` is set:
    the interpreter runs the very kernel, about 1 ms a program, which is how it is tested.
    """
    return tensor.device.type != "cpu" or os.environ.get("TRITON_INTERPRET") == "1"


def path(kernel: str, tensor: Tensor) -> ModuleType:
    """The module that does `kernel` for `tensor`: `device.<kernel>` or `reference.<kernel>`."""
    side = "device" if launches_kernels(tensor) else "reference"
    return _module(side, kernel)


@cache
def _module(side: str, kernel: str) -> ModuleType:
    return importlib.import_module(f"flowgraph.kernels.{side}.{kernel}")


def apply(function: type[Function], *arguments: object) -> Any:
    """`function.apply(*arguments)`, which torch declares without types."""
    call: Any = function.apply
    return call(*arguments)
