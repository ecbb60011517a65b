"""Tensors between ranks of a process group: nccl, rccl, hccl, or gloo where there is no device.

Tried with gloo between two processes; the device backends are untried. A transfer begins only when
`rendezvous` says that both sides are there. The header (dtype, sizes) travels with the messages,
so that the receiver has its buffer before anything is posted.
"""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from flowgraph.runtime.transport.failures import PeerLost


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What will come: plain data for the message that proposes the transfer."""

    dtype: str
    size: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TensorHeader":
        return cls(str(tensor.dtype).removeprefix("torch."), tuple(tensor.size()))

    def buffer(self, device: torch.device) -> torch.Tensor:
        return torch.empty(self.size, dtype=getattr(torch, self.dtype), device=device)


class DeviceCollective:
    """Posted sends and receives within a group. timeout_s: for one posted transfer."""

    kind = "device-collective"

    def __init__(self, group: dist.ProcessGroup, timeout_s: float = 60.0) -> None:
        self._group = group
        self._timeout = timedelta(seconds=timeout_s)

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Any strides; an empty tensor sends nothing. Raises PeerLost when the peer is gone."""
        if tensor.numel():
            self._wait(dist.isend(tensor.contiguous(), to, group=self._group), to)

    def receive(self, header: TensorHeader, source: int, device: torch.device) -> torch.Tensor:
        """The tensor that the header announced. Raises PeerLost when the peer is gone."""
        into = header.buffer(device)
        if into.numel():
            self._wait(dist.irecv(into, source, group=self._group), source)
        return into

    def _wait(self, work: dist.Work | None, peer: int) -> None:
        if work is None:
            raise ValueError(f"this process or rank {peer} is not in the group")
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            raise PeerLost(f"rank {peer} was lost within a transfer: {error}") from error
