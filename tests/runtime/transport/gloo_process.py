"""One of two ranks: `python -m tests.runtime.transport.gloo_process RANK FOLDER`.

Rank 0 sends four tensors and ends; rank 1 compares them and then waits for a fifth.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from flowgraph.runtime.transport.device_collective import DeviceCollective, TensorHeader
from flowgraph.runtime.transport.failures import PeerLost


def tensors() -> list[torch.Tensor]:
    wide = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return [wide, wide[:, ::2], torch.zeros(0, 3), torch.arange(7).to(torch.bfloat16)]


def main(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=20),
    )
    group = dist.group.WORLD
    assert group is not None
    collective = DeviceCollective(group, timeout_s=10.0)
    for tensor in tensors():
        if rank == 0:
            collective.send(tensor, 1)
        else:
            came = collective.receive(TensorHeader.of(tensor), 0, torch.device("cpu"))
            print("equal" if torch.equal(came, tensor) else "differs", flush=True)
    if rank == 1:
        try:
            collective.receive(TensorHeader("float32", (3,)), 0, torch.device("cpu"))
        except PeerLost as error:
            print(type(error).__name__, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
