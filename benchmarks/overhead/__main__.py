"""`python -m benchmarks.overhead`: CPU time a step, the runtime's beside a plain torch loop's.

CPU time (user and system) is that of all processes of the run. Both are on one core at the same
time, after some steps of their own: whatever else is going on on the machine slows both down alike,
and two processes of the run never compute at once, which on two threads of one core would be
charged as more time for the same work. Both must have trained the same: their losses are compared
step by step. Exit status 1 when the ratio misses its limit or the losses differ.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.overhead.wide import wide_plan
from flowgraph.ir.plan import Plan
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, StepFinished, WorkerStarted
from flowgraph.runtime.supervise import run_plan

LIMIT = 1.10
TOLERANCE = 1e-3
"""Of a step's loss, relatively: float32 sums in another order, over some steps of Adam."""

WARM = 2
"""Steps before the clock starts."""

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Watch:
    """Lets the loop go after the first steps, and takes the run's CPU time from then on."""

    loop: "subprocess.Popen[str]"
    last: int
    losses: list[float] = field(default_factory=list)
    began_s: float = 0.0
    cpu_s: float = 0.0
    _pids: list[int] = field(default_factory=list)

    def observe(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self._pids.append(progress.pid)
            case StepFinished():
                self.losses.append(progress.metrics["lm"]["loss"])
                if progress.step == WARM - 1:
                    assert self.loop.stdin is not None
                    print("go", file=self.loop.stdin, flush=True)
                    self.began_s = self._spent()
                if progress.step == self.last:
                    self.cpu_s = self._spent() - self.began_s

    def _spent(self) -> float:
        return time.process_time() + sum(map(_cpu_seconds, self._pids))


def _cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@dataclass(frozen=True, slots=True)
class Round:
    """CPU seconds a step, and how far the two losses are apart at most, relatively."""

    run_s: float
    loop_s: float
    apart: float


def measure(plan: Plan, steps: int) -> Round:
    """Both at once, for `steps` steps after the first `WARM`."""
    total = WARM + steps
    command = [sys.executable, "-m", "benchmarks.overhead.plain", str(total), str(WARM)]
    with (
        tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loop,
    ):
        watch = Watch(loop, last=total - 1)
        # The loop makes no checkpoints either.
        options = RunOptions(run_dir=f"{folder}/run", steps=total, checkpoint_every=10 * total)
        run_plan(plan, options, watch.observe)
        assert loop.stdout is not None
        found = json.loads(loop.stdout.readlines()[-1])
    pairs = zip(watch.losses, found["losses"], strict=True)
    apart = max(abs(ours / theirs - 1.0) for ours, theirs in pairs)
    return Round(watch.cpu_s / steps, found["cpu_s"] / steps, apart)


@click.command()
@click.option("--rounds", default=3)
@click.option("--steps", default=6)
def main(rounds: int, steps: int) -> None:
    """CPU time a step beside a plain loop's."""
    plan = wide_plan()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("| CPU s a step, all processes | plain torch loop | ratio | limit | losses apart |")
    print("|---|---|---|---|---|")
    found = []
    for _ in range(rounds):
        found.append(measure(plan, steps))
        _row("", found[-1])
    run_s, loop_s = (statistics.median(column) for column in zip(*map(_times, found), strict=True))
    whole = Round(run_s, loop_s, max(one.apart for one in found))
    _row("median ", whole)
    print(f"# load {os.getloadavg()[0]:.1f}")
    raise SystemExit(1 if run_s / loop_s > LIMIT or whole.apart > TOLERANCE else 0)


def _times(one: Round) -> tuple[float, float]:
    return one.run_s, one.loop_s


def _row(what: str, one: Round) -> None:
    ratio = one.run_s / one.loop_s
    cells = f"{one.loop_s:.3f} | {ratio:.3f} | {LIMIT:.2f} | {one.apart:.1e}"
    print(f"| {what}{one.run_s:.3f} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
