"""What the ranks of a gang do together: gloo over loopback, or nothing when there is one.

The process group is an object of its own: torch's global default group is not touched, so that a
process may belong to several gangs.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed
from torch import Tensor

from flowgraph.ir.errors import RunFailed

# Torch declares these names only to those who compiled it with gloo.
_dist: Any = torch.distributed

CONNECT_S = 60.0
"""Seconds that ranks wait for one another at the start: the slowest imports torch first."""

OPERATION_S = 120.0
"""Seconds one operation may take before a missing rank is given up."""


class CollectiveFailed(RunFailed):
    """A rank of the gang is gone or did not come in time; the others cannot go on."""


class Collective(Protocol):
    """Every rank calls the same methods in the same order with equal shapes."""

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...
    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over ranks, in place; all ranks get the same bits."""

    def broadcast(self, tensor: Tensor, source: int) -> None:
        """`source`'s values, in place, on every rank."""

    def close(self) -> None:
        """Leave the gang; the object is not used again."""


class Alone:
    """The collective of one rank: nothing to do."""

    rank = 0
    world = 1

    def all_reduce(self, tensor: Tensor) -> None:
        pass

    def broadcast(self, tensor: Tensor, source: int) -> None:
        if source != 0:
            raise ValueError(f"broadcast from rank {source} of 1")

    def close(self) -> None:
        pass


class Gloo:
    """Ranks of one gang over gloo.

    Tensors on devices are copied through the host by gloo itself.
    """

    def __init__(
        self,
        store: Any,
        *,
        rank: int,
        world: int,
        address: str = "127.0.0.1",
        timeout_s: float = OPERATION_S,
    ) -> None:
        """Meets the other ranks through `store`, a torch store. address: this host's, to bind to.

        Raises CollectiveFailed when they do not come within CONNECT_S seconds.
        """
        self.rank = rank
        self.world = world
        # Private names, but the only way to bind without touching this process's environment.
        options = _dist.ProcessGroupGloo._Options()
        options._devices = [_dist.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = timedelta(seconds=timeout_s)
        store.set_timeout(timedelta(seconds=CONNECT_S))
        try:
            self._group = _dist.ProcessGroupGloo(store, rank, world, options)
        except RuntimeError as error:
            raise CollectiveFailed(
                f"rank {rank} of {world}: the gang did not meet: {error}",
                hint="look at the logs of the other ranks",
            ) from error

    def all_reduce(self, tensor: Tensor) -> None:
        options = _dist.AllreduceOptions()
        options.reduceOp = _dist.ReduceOp.SUM
        self._wait(self._group.allreduce([tensor], options), "all_reduce")

    def broadcast(self, tensor: Tensor, source: int) -> None:
        options = _dist.BroadcastOptions()
        options.rootRank = source
        options.rootTensor = 0
        self._wait(self._group.broadcast([tensor], options), f"broadcast from rank {source}")

    def close(self) -> None:
        self._group.shutdown()

    def _wait(self, work: Any, what: str) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise CollectiveFailed(
                f"rank {self.rank} of {self.world}: {what} failed: {error}",
                hint="look at the logs of the other ranks: one of them ended or is stuck",
            ) from error


def connect(address: str, port: int, *, rank: int, world: int) -> Collective:
    """The gang's collective; rank 0 serves the meeting point at `address:port`.

    port: > 0, free on rank 0's host. Raises CollectiveFailed when the others do not come within
    CONNECT_S seconds.
    """
    if world == 1:
        return Alone()
    try:
        store = _meeting(address, port, rank=rank, world=world)
        return Gloo(store, rank=rank, world=world, address=address)
    except (RuntimeError, OSError) as error:
        raise CollectiveFailed(
            f"rank {rank} of {world}: the gang did not meet at {address}:{port}: {error}"
        ) from error


def _meeting(address: str, port: int, *, rank: int, world: int) -> Any:
    """The store through which ranks find one another."""
    patience = timedelta(seconds=CONNECT_S)
    if rank != 0:
        return _dist.TCPStore(address, port, world, False, timeout=patience)
    # Left to itself the store listens on every interface.
    with socket.create_server((address, port), backlog=max(16, world)) as server:
        return _dist.TCPStore(
            address, port, world, True, timeout=patience, master_listen_fd=server.detach()
        )
