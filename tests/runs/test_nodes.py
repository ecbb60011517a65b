"""Two nodes that are strangers: what one reads of the other comes over tcp, and nothing changes.

Both are this machine here; a plan whose places differ is all that makes them strangers.
"""

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flowgraph as fg
from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.errors import RunFailed
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.journal_reader import read_messages
from flowgraph.runtime.messages import Fetching
from flowgraph.runtime.nodes import nodes_of
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import (
    PorterStarted,
    Progress,
    Restarted,
    RunResult,
    WorkerStarted,
)
from flowgraph.runtime.supervise import run_plan
from tests.runs.running import GRAPHS, TWO_CORES, run

AMID_S = 1.0
"""From the last worker's being ready to the blow: some wait for what a stopped porter holds."""

NODES = {
    "letters": {"host.replicas": 2, "lm.ranks": 2},
    "games": {"host.replicas": 2, "player.engines": 2},
}


def cluster(trusted: bool) -> Cluster:
    return Cluster(
        name="strangers",
        kinds=(DeviceKind(name="core", kind="cpu", slots=16),),
        nodes=tuple(
            Node(name=name, device="core", devices=1, cores=1, memory_bytes=8 << 30)
            for name in ("left", "right")
        ),
        trusted=trusted,
    )


def plan(graph: str, where: Cluster, pins: dict[str, Any] | None = None) -> Plan:
    return compile_graph(fg.load_graph(str(GRAPHS / f"{graph}.py"), {}), where, pins)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, RunResult]:
    """The graphs' results on one node."""
    folder = tmp_path_factory.mktemp("alone")
    return {
        graph: run(plan(graph, TWO_CORES), folder / graph, steps=2, exact=True) for graph in NODES
    }


@pytest.mark.parametrize(("graph", "trusted"), [("letters", True), ("games", False)])
def test_two_nodes_train_the_same_weights_as_one(
    alone: Mapping[str, RunResult], graph: str, trusted: bool, tmp_path: Path
) -> None:
    apart = plan(graph, cluster(trusted), NODES[graph])
    assert set(nodes_of(apart).values()) == {"left", "right"}
    result = run(apart, tmp_path / "run", steps=2, exact=True)
    assert result.weights_digest == alone[graph].weights_digest
    names = [worker["name"] for worker in result.workers]
    assert {"porter:left", "porter:right"} <= set(names)
    for worker in result.workers:
        stays = worker["name"] in ("orchestrator", "zygote")  # here, for the next run
        assert stays or not Path(f"/proc/{worker['pid']}").exists()
    for name in ("porter:left", "porter:right"):
        assert (tmp_path / "run" / "logs" / f"{name}.log").read_text() == ""


def test_with_room_for_hardly_a_block_and_a_spill_the_weights_are_the_same(
    alone: Mapping[str, RunResult], tmp_path: Path
) -> None:
    """Items wait for what is fetched for those before them; what finds no room is read on disk."""
    apart = replace(plan("letters", cluster(False), NODES["letters"]), pool_bytes=1 << 10)
    options = RunOptions(
        run_dir=str(tmp_path / "run"), steps=2, exact=True, restarts=0, spill_bytes=1 << 20
    )
    result = run_plan(apart, options, lambda _: None)
    assert result.weights_digest == alone["letters"].weights_digest


def test_a_node_that_cannot_be_listened_at_ends_the_run_by_its_name(tmp_path: Path) -> None:
    where = cluster(False)
    away = replace(where.nodes[1], address="203.0.113.7")
    apart = plan("letters", replace(where, nodes=(where.nodes[0], away)), NODES["letters"])
    with pytest.raises(RunFailed, match=r"porter:right cannot serve: .*203\.0\.113\.7"):
        run(apart, tmp_path / "run")


class Trouble:
    """Stops the porters before anybody can fetch, so that the first fetches hang half-way; then
    kills whom it is told, and lets the stopped go on."""

    def __init__(self, victim: str, plan: Plan) -> None:
        self._victim = victim
        self._workers = set(nodes_of(plan))
        self._pids: dict[str, int] = {}
        self.restarts: list[Restarted] = []
        self.killed = 0
        self._armed = False

    def __call__(self, progress: Progress) -> None:
        if isinstance(progress, Restarted):
            self.restarts.append(progress)
        if self.killed:
            return  # what comes after the blow is left alone
        if isinstance(progress, PorterStarted):
            self._pids[f"porter:{progress.node}"] = progress.pid
            os.kill(progress.pid, signal.SIGSTOP)
        if not isinstance(progress, WorkerStarted):
            return
        self._pids[progress.name] = progress.pid
        if self._workers <= set(self._pids) and not self._armed:
            self._armed = True
            threading.Timer(AMID_S, self._strike).start()

    def _strike(self) -> None:
        for name, pid in self._pids.items():
            if name.startswith(self._victim):
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
        for name, pid in self._pids.items():
            if name.startswith("porter:") and not name.startswith(self._victim):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("graph", "victim"),
    [
        ("letters", "porter:"),
        ("letters", "lm.gang-0"),
        pytest.param("games", "host-1", marks=pytest.mark.soak),
        ("games", "player.engine-1"),
    ],
)
def test_who_is_killed_amid_a_fetch_is_replaced_and_the_weights_are_the_same(
    alone: Mapping[str, RunResult], graph: str, victim: str, tmp_path: Path
) -> None:
    """Both porters are lost at once, or one receiver of each kind."""
    apart = plan(graph, cluster(False), NODES[graph])
    trouble = Trouble(victim, apart)
    result = run(apart, tmp_path / "run", steps=2, exact=True, restarts=3, observe=trouble)
    assert trouble.killed == (2 if victim == "porter:" else 1)
    assert len(trouble.restarts) == (0 if victim == "porter:" else 1)
    assert result.weights_digest == alone[graph].weights_digest


@pytest.mark.parametrize(
    ("graph", "porter"),
    [("letters", "right"), pytest.param("games", "left", marks=pytest.mark.soak)],
)
def test_a_porter_that_hangs_is_replaced_once_its_readers_gave_up(
    alone: Mapping[str, RunResult], graph: str, porter: str, tmp_path: Path
) -> None:
    """The reader is a rank, with which the run goes back, or an engine that is replaced alone."""
    apart = plan(graph, cluster(False), NODES[graph])
    causes: list[str] = []
    hung: list[int] = []

    def hang(progress: Progress) -> None:
        if isinstance(progress, Restarted):
            causes.append(progress.cause)
        if isinstance(progress, PorterStarted) and progress.node == porter and not hung:
            hung.append(progress.pid)
            os.kill(progress.pid, signal.SIGSTOP)

    options = RunOptions(run_dir=str(tmp_path / "run"), steps=2, exact=True, fetch_s=2.0)
    result = run_plan(apart, options, hang)
    assert result.weights_digest == alone[graph].weights_digest
    assert "could not read a block of another node" in causes[0]
    told = [m for *_, m in read_messages(tmp_path / "run") if isinstance(m, Fetching)]
    if graph == "letters":  # an engine waits for weights, which is no item
        assert told[0].porters == (f"porter:{porter}",)
    now = {worker["name"]: worker["pid"] for worker in result.workers}
    assert now[f"porter:{porter}"] != hung[0]
