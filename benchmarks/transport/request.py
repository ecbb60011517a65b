"""A small request and its reply: our messages beside the same bytes through plain pyzmq."""

import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import zmq

from benchmarks.transport.rig import side
from flowgraph.runtime.messages import Load, decode, encode
from flowgraph.runtime.transport.sockets import Context, make_socket

HANDLE = ("lm.gang-0", 12, 3, 64, 168, 1 << 40, 1, (1, (("weights", "uint8", (0, 96), (128, 2)),)))


def measure(windows: int, requests: int) -> dict[str, tuple[float, float]]:
    """p50 and p99 in seconds: medians over interleaved windows."""
    folder = tempfile.mkdtemp(prefix="flowgraph-bench-")
    context: Context = zmq.Context()
    message = Load(version=3, weights=HANDLE, digest="d" * 64)
    data = encode(message)
    with side("link", f"ipc://{folder}/link"), side("echo", f"ipc://{folder}/echo"):
        ours, plain = (make_socket(context, zmq.DEALER) for _ in range(2))
        ours.bind(f"ipc://{folder}/link")
        plain.bind(f"ipc://{folder}/echo")

        def one_of_ours() -> None:
            ours.send(encode(message))
            decode(ours.recv())

        def one_plain() -> None:
            plain.send(data)
            plain.recv()

        turns: dict[str, Callable[[], None]] = {"ours": one_of_ours, "pyzmq": one_plain}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in turns}
        for _ in range(windows):
            for name, turn in turns.items():
                found[name].append(_window(turn, requests))
        for socket in (ours, plain):
            socket.close(0)
    context.term()
    return {
        name: (median(p50 for p50, _ in pairs), median(p99 for _, p99 in pairs))
        for name, pairs in found.items()
    }


def _window(turn: Callable[[], None], requests: int) -> tuple[float, float]:
    times = np.empty(requests)
    for number in range(requests):
        began = time.perf_counter()
        turn()
        times[number] = time.perf_counter() - began
    return float(np.percentile(times, 50)), float(np.percentile(times, 99))
