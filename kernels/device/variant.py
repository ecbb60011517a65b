"""The compiled shapes of a kernel: what the launcher launches and the resource check compiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Elements of a block: 8 KiB of 8-byte words, four 16-byte loads in flight for each of 128 threads.
BLOCK = 1024
WARPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One specialisation of a kernel.

    kernel: the `triton.jit` function. label: what sets this one apart, for the table.
    signature: argument -> Triton type, constexprs left out. constexprs: argument -> value.
    aligned: arguments that are multiples of 16 (pointers, strides), as the launcher will see them.
    load, store: bytes that its widest load and widest store must reach, 0 where nothing is asked.
    """

    kernel: Any
    label: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    aligned: tuple[str, ...] = ()
    load: int = 16
    store: int = 16
    warps: int = WARPS


def upload(table: NDArray[np.int64], device: torch.device) -> Tensor:
    """A host table on the device, without waiting for it where the device allows that."""
    host = torch.from_numpy(np.ascontiguousarray(table))
    if device.type == "cpu":
        return host
    return host.pin_memory().to(device, non_blocking=True)


def launch(
    kernel: Any, grid: tuple[int, ...], device: torch.device, *arguments: object, **options: object
) -> None:
    """Launches `kernel` on the tensors' device, which need not be the process's current one."""
    if device.type == "cpu":  # interpreted
        kernel[grid](*arguments, **options)
        return
    with torch.accelerator.device_index(device.index):
        kernel[grid](*arguments, **options)


def power_of_two(count: int) -> int:
    """The least power of two that is not below `count`, at least 1."""
    return 1 << max(0, count - 1).bit_length()
