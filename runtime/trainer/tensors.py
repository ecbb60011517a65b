"""Columns as tensors and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import STORAGE, Column, Int64s


def tensor_of(column: Column, device: torch.device) -> Tensor:
    """The column's flat values [T, ...] on `device`.

    Values that may not be written to are copied: they lie in another process's pool, whose block
    may be freed while an activation still needs them.
    """
    return on_device(column.values, column.dtype, device)


def on_device(values: NDArray[Any], dtype: str, device: torch.device) -> Tensor:
    """`tensor_of` for values that stand in `STORAGE[dtype]`."""
    tensor = torch.from_numpy(values if values.flags.writeable else values.copy())
    return (tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor).to(device)


def column_of(tensor: Tensor, dtype: str, offsets: tuple[Int64s, ...]) -> Column:
    """A column of the tensor's values [T, ...] in a floating `dtype`, on the host."""
    values = tensor.detach().to(getattr(torch, dtype)).contiguous().cpu()
    if dtype == "bfloat16":
        return Column(dtype, values.view(torch.uint16).numpy(), offsets)
    array: NDArray[Any] = values.numpy()
    return Column(dtype, np.asarray(array, STORAGE[dtype]), offsets)


class DeviceColumns:
    """Columns of a batch on a device, each brought there once, when first asked for."""

    def __init__(self, batch: Batch, device: torch.device) -> None:
        self.batch = batch
        self._device = device
        self._there: dict[str, Tensor] = {}

    def __contains__(self, name: object) -> bool:
        return name in self.batch.columns

    def __getitem__(self, name: str) -> Tensor:
        """Flat values [T, ...]."""
        if name not in self._there:
            self._there[name] = tensor_of(self.batch[name], self._device)
        return self._there[name]
