"""`python -m benchmarks.recovery`: seconds from kill -9 of a worker to progress again.

One run of the agents' example for each kind of worker and round. A stage worker and an engine are
replaced alone; with a rank the run goes back to its last checkpoint. The worker's own start (a
process that is forked from one which has imported torch, its modules, its weights) is told beside
and not counted. Exit status 1 when the limit is missed.
"""

import os
import statistics
from pathlib import Path

import click

from benchmarks.recovery.killed_run import kill_in_a_run
from benchmarks.simulate.measured_run import plan_of

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "marl_arithmetic.py"

LIMIT_S = 3.0
VICTIMS = (
    ("stage worker", "host-0"),
    ("engine", "solver.engine-0"),
    ("rank", "solver.gang-0"),
)


@click.command()
@click.option("--rounds", default=3)
@click.option("--steps", default=8)
def main(rounds: int, steps: int) -> None:
    """Seconds from a kill to progress again, by kind of worker; medians."""
    plan = plan_of(EXAMPLE, {"eval_samples": "8"}, {})
    print(
        f"# load {os.getloadavg()[0]:.1f}; medians of {rounds} runs; limit {LIMIT_S:.0f} s + start"
    )
    print("| killed | noticed s | own start s | first answer s | progress again, less start s |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for kind, victim in VICTIMS:
        found = [
            kill_in_a_run(plan, victim, after_step=steps // 2, steps=steps) for _ in range(rounds)
        ]
        columns = [
            statistics.median(getattr(one, name) for one in found)
            for name in ("noticed", "start", "answer", "seconds")
        ]
        how = "rolled back" if found[0].rolled_back else "replaced alone"
        cells = " | ".join(f"{value:.3f}" for value in columns)
        print(f"| {kind} ({how}) | {cells} |", flush=True)
        worst = max(worst, columns[-1])
    raise SystemExit(1 if worst > LIMIT_S else 0)


if __name__ == "__main__":
    main()
