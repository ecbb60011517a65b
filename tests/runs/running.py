"""Runs a graph file to its end, as the command line does, on one small machine."""

import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import flowgraph as fg
from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.launch.local import LocalLauncher
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, RunResult
from flowgraph.runtime.supervise import run_plan

ROOT = Path(__file__).parent.parent.parent
GRAPHS = Path(__file__).parent / "graphs"

TWO_CORES = Cluster(
    name="two-cores",
    kinds=(DeviceKind(name="core", kind="cpu", slots=16),),
    nodes=(Node(name="local", device="core", devices=2, cores=2, memory_bytes=8 << 30),),
)


class KeptLauncher(LocalLauncher):
    """Its process that has imported torch serves later runs too: seconds of each test."""

    _kept: ClassVar["KeptLauncher | None"] = None

    @classmethod
    def take(cls) -> "KeptLauncher":
        """The one of this test process, anew when the environment is another."""
        if cls._kept is not None and cls._kept.environment != _environment():
            cls._kept._end()
            cls._kept = None
        if cls._kept is None:
            cls._kept = cls()
        return cls._kept

    def __init__(self) -> None:
        self.environment = _environment()
        super().__init__()

    def close(self, grace_s: float = 0.0) -> None:
        self._let_end(grace_s)
        self.clear()


def _environment() -> dict[str, str]:
    """What the forked ones inherit, less the name of the test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def plan_of(
    graph: Path, settings: Mapping[str, str] | None = None, pins: Mapping[str, Any] | None = None
) -> Plan:
    return compile_graph(fg.load_graph(str(graph), settings or {}), TWO_CORES, pins)


def run(
    plan: Plan,
    folder: Path,
    *,
    steps: int | None = None,
    exact: bool = False,
    record: bool = False,
    checkpoint_every: int = 0,
    restarts: int = 0,
    silence_s: float = 1800.0,
    liveness_s: float = 15.0,
    retries: int = 0,
    quarantine: int = 0,
    observe: Callable[[Progress], None] = lambda _: None,
) -> RunResult:
    """Real processes, ended when this returns, but for the one that they are forked from."""
    options = RunOptions(
        run_dir=str(folder),
        steps=steps,
        exact=exact,
        record=record,
        checkpoint_every=checkpoint_every,
        restarts=restarts,
        silence_s=silence_s,
        liveness_s=liveness_s,
        retries=retries,
        quarantine=quarantine,
    )
    return run_plan(plan, options, observe, KeptLauncher.take)


def all_end(pids: Sequence[int], within_s: float = 10.0) -> bool:
    """Whether the processes end in time; by their descriptors, so nothing is polled."""
    until = time.monotonic() + within_s
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        os.close(descriptor)
        if not ended:
            return False
    return True
