"""`python -m tests.runtime.orchestrator [--seconds N]`: a worker is lost at every event.

Each worker of each small run, and the orchestrator with all of them (`everybody`), at each of its
events: what CI takes a sample of. `--run`, `--worker` and `--at` replay one.
"""

import argparse
import sys
import time
from itertools import product

from tests.runtime.orchestrator.live import Loss
from tests.runtime.orchestrator.losses import RUNS, check, uninterrupted, victims


def main() -> int:
    """1 when a result differed; the loss is told with its command."""
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.orchestrator")
    parser.add_argument("--run", choices=RUNS, help="only this run")
    parser.add_argument("--worker", help="only this worker")
    parser.add_argument("--at", type=int, help="only this event")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after that long")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    done = 0
    for name in [options.run] if options.run else RUNS:
        _, events = uninterrupted(name)
        ats = range(events) if options.at is None else [options.at]
        for at, worker in product(ats, [options.worker] if options.worker else victims(name)):
            if time.monotonic() > until:
                print(f"{done} losses left no trace; the time is over")
                return 0
            try:
                check(name, Loss(at, worker), seed=at)
            except Exception as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                again = f"--run {name} --worker {worker} --at {at}"
                print(f"replay: python -m tests.runtime.orchestrator {again}", file=sys.stderr)
                return 1
            done += 1
    print(f"{done} losses left no trace")
    return 0


if __name__ == "__main__":
    sys.exit(main())
