"""`python -m benchmarks.overhead`: CPU time a step, the runtime's against a plain torch loop's.

CPU time (user and system) is that of all processes: what `wait4` says of a command includes the
children that it waited for. All are kept on one core: two processes that compute at once on two
threads of one core are charged more time for the same work, which says nothing about the runtime.
Start-up, the end and evaluations are excluded by difference: runs of
few and of many steps are taken in turns, and a step is the difference of the two over that of their
steps. Both must have trained the same: their losses are compared step by step. Exit status 1 when
the ratio misses its limit or the losses differ.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.overhead.wide import wide_plan
from flowgraph.ir.binary import encode

LIMIT = 1.10
TOLERANCE = 1e-3
"""Of a step's loss, relatively: float32 sums in another order, over some steps of Adam."""


@dataclass(frozen=True, slots=True)
class Cost:
    """cpu_s: of a step. losses: by step, of the longer run."""

    cpu_s: float
    losses: list[float]


def cpu_of(command: Sequence[str]) -> tuple[float, str]:
    """CPU seconds of the command with all its descendants, and its last line of output."""
    with tempfile.TemporaryFile("w+") as output:
        core = str(max(os.sched_getaffinity(0)))
        process = subprocess.Popen(
            ["taskset", "-c", core, *command], stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)} failed:\n{text}")
    return usage.ru_utime + usage.ru_stime, text.strip().rpartition("\n")[2]


def plain(steps: int) -> tuple[float, list[float], float]:
    """CPU seconds, losses, and the median seconds of forward and backward of a step."""
    cpu, line = cpu_of([sys.executable, "-m", "benchmarks.overhead.plain", str(steps)])
    found: dict[str, Any] = json.loads(line)
    return cpu, found["losses"], statistics.median(found["seconds"])


def ours(plan: Path, steps: int) -> tuple[float, list[float]]:
    """CPU seconds and losses of the run."""
    with tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder:
        run = Path(folder) / "run"
        program = [sys.executable, "-m", "flowgraph.cli.main", "run", str(plan), "--json"]
        cpu, _ = cpu_of([*program, "--steps", str(steps), "--run-dir", str(run)])
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        losses = [
            line["metrics"]["lm"]["loss"] for line in lines if "lm" in line.get("metrics", {})
        ]
    return cpu, losses


@click.command()
@click.option("--rounds", default=3)
@click.option("--few", default=2, help="steps of the shorter runs")
@click.option("--many", default=8, help="steps of the longer runs")
def main(rounds: int, few: int, many: int) -> None:
    """CPU time a step beside a plain loop's."""
    steps = many - few
    ratios, of_run, of_loop = [], [], []
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder:
        plan = Path(folder) / "wide.fgplan"
        plan.write_bytes(encode(wide_plan()))
        for _ in range(rounds):
            short_loop, _, _ = plain(few)
            short_run, _ = ours(plan, few)
            long_loop, expected, forward_s = plain(many)
            long_run, losses = ours(plan, many)
            of_loop.append((long_loop - short_loop) / steps)
            of_run.append((long_run - short_run) / steps)
            ratios.append(of_run[-1] / of_loop[-1])
            apart = (abs(a / b - 1) for a, b in zip(losses, expected, strict=True))
            worst = max(worst, *apart)
            print(f"  {of_run[-1]:.3f} s / {of_loop[-1]:.3f} s = {ratios[-1]:.3f}", flush=True)
    ratio = statistics.median(of_run) / statistics.median(of_loop)
    print(f"# load {os.getloadavg()[0]:.1f}; forward and backward of a step {forward_s:.2f} s")
    print(
        "| CPU s a step | plain torch loop | ratio | limit | losses apart |\n|---|---|---|---|---|"
    )
    medians = f"{statistics.median(of_run):.3f} | {statistics.median(of_loop):.3f}"
    print(f"| {medians} | {ratio:.3f} | {LIMIT:.2f} | {worst:.1e} |")
    raise SystemExit(1 if ratio > LIMIT or worst > TOLERANCE else 0)


if __name__ == "__main__":
    main()
