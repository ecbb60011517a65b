"""Signs of life of 10,000 workers: `python -m benchmarks.orchestrator.beats`.

One process beats for all of them over ipc; what is timed is the processor time of the thread that
reads them and looks who is late, as the run's loop does.
"""

import os
import tempfile
import threading
import time
from collections.abc import Sequence

import zmq

from flowgraph.runtime.heartbeats import Heartbeats, period
from flowgraph.runtime.transport.refusals import Refusals
from flowgraph.runtime.transport.switchboard import BEAT, Switchboard

WORKERS = 10_000
LIVENESS_S = 15.0
ROUNDS = 5


def main() -> None:
    """Print the best of some rounds."""
    names = [f"host-{index}" for index in range(WORKERS)]
    beats = Heartbeats(names, LIVENESS_S)
    with tempfile.TemporaryDirectory() as folder:
        board = Switchboard(folder, names, Refusals())
        reads = min(read_all(board, beats, names, at) for at in range(ROUNDS))
        board.close()
    began = time.thread_time()
    for at in range(100):
        beats.late(ROUNDS + at / 100.0, lambda _: 1.0)
    looks = (time.thread_time() - began) / 100.0
    share = reads / period(LIVENESS_S) + looks
    print(f"# load {os.getloadavg()[0]:.1f}; best of {ROUNDS}, processor time of one thread")
    print(f"beats read: {WORKERS / reads:,.0f} a second")
    print(f"who of {WORKERS:,} is late: {1e3 * looks:.2f} ms")
    print(f"{WORKERS:,} workers that beat every {period(LIVENESS_S):g} s: {share:.1%} of a core")


def read_all(board: Switchboard, beats: Heartbeats, names: Sequence[str], at: float) -> float:
    """Seconds of the reading thread for a beat of each worker."""
    sender = threading.Thread(target=_beat, args=(board.endpoint, names))
    sender.start()
    sender.join()
    seen: set[str] = set()
    used = 0.0
    until = time.monotonic() + 30.0
    while len(seen) < len(names):
        began = time.thread_time()
        board.receive(0)
        new = board.beats()
        beats.beat(new, at)
        used += time.thread_time() - began
        seen |= new
        if time.monotonic() > until:
            raise RuntimeError(f"only {len(seen)} of {len(names)} beats came")
    return used


def _beat(endpoint: str, names: Sequence[str]) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.connect(endpoint)
    for name in names:
        socket.send_multipart([BEAT, name.encode()])
    socket.close(linger=10_000)
    context.term()


if __name__ == "__main__":
    main()
