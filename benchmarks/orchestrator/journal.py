"""What the journal costs the run's loop: `python -m benchmarks.orchestrator.journal`."""

import os
import tempfile
import time
from pathlib import Path

from flowgraph.runtime.journal import RECEIVED, Journal

EVENTS = 100_000
ROUNDS = 3


def main() -> None:
    """Print events a second, as the loop's thread sees them and until they are on disk."""
    print(f"# load {os.getloadavg()[0]:.1f}; best of {ROUNDS}")
    print("| bytes an event | loop's own time, events/s | until on disk, events/s |\n|---|---|---|")
    for size in (100, 1000):
        rounds = [measure(size) for _ in range(ROUNDS)]
        own, whole = min(r[0] for r in rounds), min(r[1] for r in rounds)
        print(f"| {size} | {EVENTS / own:,.0f} | {EVENTS / whole:,.0f} |", flush=True)


def measure(size: int) -> tuple[float, float]:
    """(processor seconds of the calling thread, seconds until all is on disk)."""
    payload = bytes(size)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.db")
        journal.attempt(0, "")
        began, own = time.perf_counter(), time.thread_time()
        for _ in range(EVENTS):
            journal.message(1.0, RECEIVED, "host-0", "Done", payload, None)
        own = time.thread_time() - own
        journal.flush()
        whole = time.perf_counter() - began
        journal.close()
    return own, whole


if __name__ == "__main__":
    main()
