"""One real run, watched: its steps, its processes' CPU time, and the machine's other load."""

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import flowgraph as fg
from flowgraph.cli.local_machine import local_cluster
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, RunStarted, StepFinished, WorkerStarted
from flowgraph.runtime.simulate.measure import CpuTime, Measured, measure, read_run
from flowgraph.runtime.supervise import run_plan

TICK = os.sysconf("SC_CLK_TCK")
LOOKS, LOOK_S = 10, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """median_s: of the steps but the first two. background: busy processes of others before it.
    measured: times in CPU seconds, as on a machine of one's own. crowded: as long as it took, with
    all that others took meanwhile.
    """

    median_s: float
    background: float
    measured: Measured
    crowded: Measured


def plan_of(graph: Path, settings: Mapping[str, str], pins: Mapping[str, Any]) -> Plan:
    """The graph's plan on this machine."""
    return compile_graph(fg.load_graph(str(graph), settings), local_cluster(), pins)


def run_measured(plan: Plan, steps: int) -> MeasuredRun:
    """Run the plan and take its measurements; leaves nothing behind."""
    background = others()
    watch = _Watch(last=steps - 1)
    with tempfile.TemporaryDirectory(prefix="flowgraph-bench-") as folder:
        directory = Path(folder) / "run"
        run_plan(plan, RunOptions(run_dir=str(directory), steps=steps), watch.observe)
        ran, messages = read_run(directory)
        log = list(messages)
        measured = measure(ran, log, watch.cpu())
        crowded = measure(ran, log)
    return MeasuredRun(
        median_s=statistics.median(watch.seconds[2:] or watch.seconds),
        background=background,
        measured=measured,
        crowded=replace(
            crowded, times=replace(crowded.times, event_s=measured.times.event_s * watch.slowdown)
        ),
    )


def others() -> float:
    """Processes of others that want to run now, on average over a second."""
    seen = []
    for _ in range(LOOKS):
        lines = Path("/proc/stat").read_text().splitlines()
        running = next(int(line.split()[1]) for line in lines if line.startswith("procs_running"))
        seen.append(max(0, running - 1))  # less this process
        time.sleep(LOOK_S)
    return statistics.fmean(seen)


class _Watch:
    """CPU time of all processes of a run, between all being ready and its last step."""

    def __init__(self, last: int) -> None:
        self.seconds: list[float] = []
        self._last = last
        self._pids: dict[str, int] = {}
        self._before: dict[str, float] = {}
        self._after: dict[str, float] = {}
        self._busy = 0.0

    def observe(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self._pids[progress.name] = progress.pid
            case RunStarted():
                self._before = self._look()
            case StepFinished():
                self.seconds.append(progress.seconds)
                self._busy += progress.seconds * sum(progress.busy.values())
                if progress.step == self._last:
                    self._after = self._look()

    def cpu(self) -> CpuTime:
        spent = {name: self._after[name] - self._before[name] for name in self._after}
        return CpuTime(spent, spent.pop(""))

    @property
    def slowdown(self) -> float:
        """Seconds that a worker was busy for each of its CPU seconds, over all workers."""
        return max(1.0, self._busy / max(1e-9, sum(self.cpu().workers.values())))

    def _look(self) -> dict[str, float]:
        found = {"": _cpu_seconds(os.getpid())}
        for name, pid in self._pids.items():
            with contextlib.suppress(FileNotFoundError):
                found[name] = _cpu_seconds(pid)
        return found


def _cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK
