"""Tensors between processes that share a device: the allocation is opened, not copied.

Untried: written against torch's storage sharing (`UntypedStorage._share_cuda_`, which ROCm builds
have under the same name); no machine with an accelerator has run it. What can be tested without a
device is, in `device_ledger`: how long the owner must hold what it shared.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.transport.device_ledger import DeviceLedger, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTensor:
    """What another process needs to open the tensor: plain data.

    storage: the driver's handle of the allocation and its place there. size, stride, offset: of the
    tensor within the storage, in elements.
    """

    number: int
    owner: str
    dtype: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: tuple[Any, ...]


class DeviceExports:
    """The owner's side: shares tensors, and holds each until its readers are done or gone."""

    def __init__(self, owner: str, budget: int) -> None:
        self._owner = owner
        self._ledger = DeviceLedger(budget)
        self._held: dict[int, torch.Tensor] = {}

    @property
    def held(self) -> int:
        return len(self._held)

    def offer(self, tensor: torch.Tensor, readers: Iterable[str]) -> DeviceTensor | None:
        """None when the budget has no room now. Raises ConfigurationError for host memory.

        The producing stream is waited for: a reader in another process has no order with it.
        """
        require_accelerator(tensor)
        number = self._ledger.offer(tensor.untyped_storage().nbytes(), readers)
        if number is None:
            return None
        torch.accelerator.synchronize(tensor.device)
        self._held[number] = tensor
        return DeviceTensor(
            number=number,
            owner=self._owner,
            dtype=str(tensor.dtype).removeprefix("torch."),
            size=tuple(tensor.size()),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            storage=_storage_of(tensor),
        )

    def opened(self, number: int, reader: str) -> None:
        self._ledger.move(number, reader, Reading.OPENED)

    def closed(self, number: int, reader: str) -> None:
        if self._ledger.move(number, reader, Reading.CLOSED):
            del self._held[number]

    def lost(self, reader: str) -> None:
        for number in self._ledger.lost(reader):
            del self._held[number]


def _storage_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return tuple(storage._share_cuda_())  # type: ignore[no-untyped-call]


def open_tensor(shared: DeviceTensor) -> torch.Tensor:
    """A view of the owner's memory, to be read only; say `closed` when it is not used any more."""
    storage = torch.UntypedStorage._new_shared_cuda(*shared.storage)
    dtype = getattr(torch, shared.dtype)
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    return empty.set_(storage, shared.offset, shared.size, shared.stride)


def require_accelerator(tensor: torch.Tensor) -> None:
    """Raises ConfigurationError for a tensor in host memory."""
    if tensor.device.type == "cpu":
        raise ConfigurationError(
            "device-ipc shares device memory; this tensor is in host memory",
            hint="pin the channel's transport to shared-memory",
        )
