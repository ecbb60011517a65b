"""The core's rate on one core: `python -m benchmarks.orchestrator [--most 1000000]`."""

import os
import resource

import click

from benchmarks.orchestrator.driver import measure
from benchmarks.orchestrator.graph import small_plan

ASKED = {1: 200_000, 64: 1_000_000}
"""Record events a second, by records an event."""


@click.command()
@click.option("--most", default=1_000_000, help="records in flight")
@click.option("--rounds", default=3)
def main(most: int, rounds: int) -> None:
    """Print record events a second by records in flight, and the process's peak memory."""
    plan = small_plan()
    print(f"# load {os.getloadavg()[0]:.1f}; best of {rounds}, processor time of one core")
    print("| records an event | in flight | record events/s | asked | memory MB |")
    print("|---|---|---|---|---|")
    missed = False
    for of, asked in ASKED.items():
        count = 1_000
        while count <= most:
            steps = max(1, 20_000 // count)
            found = [measure(plan, records=count, of=of, steps=steps) for _ in range(rounds)]
            rate = max(figure.events_per_second for figure in found)
            missed = missed or rate < asked
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"| {of} | {count:,} | {rate:,.0f} | {asked:,} | {peak:,} |", flush=True)
            count *= 10
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
