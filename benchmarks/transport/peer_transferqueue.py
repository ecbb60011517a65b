"""transferqueue 0.1.11, in its own environment: put in this process, get in a Ray actor.

Run as `PYTHON -m benchmarks.transport.peer_transferqueue`; prints one JSON object of seconds.
"""

import json
import time
from typing import Any

import ray  # type: ignore[import-not-found]
import torch
import transfer_queue as tq  # type: ignore[import-not-found]
from tensordict import TensorDict  # type: ignore[import-not-found]

from benchmarks.transport.workload import FIELDS, dense, ragged_rows

ROUNDS = 9


class Reader:
    """The other process."""

    def __init__(self) -> None:
        tq.init()

    def get(self, keys: list[str]) -> int:
        found = tq.kv_batch_get(keys, "bench")
        return len(found.keys())


def ragged_fields() -> TensorDict:
    rows = ragged_rows()
    fields = {
        name: torch.nested.as_nested_tensor(
            [torch.from_numpy(row[name]) for row in rows], layout=torch.jagged
        )
        for name in FIELDS
    }
    return TensorDict(fields, batch_size=[len(rows)])


def measure(reader: Any, fields: TensorDict, name: str) -> list[float]:
    """Seconds of put + get, round by round; each round's keys are new and cleared afterwards."""
    seconds = []
    for number in range(ROUNDS):
        keys = [f"{name}-{number}-{row}" for row in range(fields.batch_size[0])]
        began = time.perf_counter()
        tq.kv_batch_put(keys=keys, partition_id="bench", fields=fields)
        ray.get(reader.get.remote(keys))
        seconds.append(time.perf_counter() - began)
        tq.kv_clear(keys, "bench")
    return seconds


def store_get() -> float:
    """Ray's object store: best seconds for getting an 18 MiB array that is there already."""
    reference = ray.put(dense())
    times = []
    for _ in range(50):
        began = time.perf_counter()
        ray.get(reference)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    ray.init(num_cpus=8, namespace="transfer_queue", log_to_driver=False, logging_level="error")
    tq.init()
    reader = ray.remote(num_cpus=0)(Reader).remote()
    ragged = measure(reader, ragged_fields(), "ragged")
    whole = TensorDict({"x": torch.from_numpy(dense())}, batch_size=[256])
    found = {"ragged": ragged, "dense": measure(reader, whole, "dense"), "ray_get": store_get()}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
