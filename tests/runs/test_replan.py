"""A run goes on with other workers than it began with, to the same bits."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from flowgraph.cli.replan import replanned
from flowgraph.ir.binary import decode
from flowgraph.ir.errors import ConfigurationError
from tests.runs.command import COMMAND, flowgraph, start, steps_of, wait_for
from tests.runs.running import GRAPHS, ROOT, plan_of
from tests.runs.test_resume import SETTINGS

LETTERS = str(GRAPHS / "letters.py")
FOUR_CORES = """
name: four-cores
kinds: {core: {kind: cpu, slots: 16}}
nodes: [{name: local, device: core, devices: 4, cores: 4, memory: 8 GiB}]
"""


def interrupted(folder: Path, *options: str) -> None:
    """A run that is killed with all its processes after some checkpoints."""
    arguments = ["run", LETTERS, *SETTINGS, "--checkpoint-every", "4", "--run-dir", str(folder)]
    process = start(*arguments, *options)
    wait_for(process, "step ")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("by_cluster", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_run_resumed_with_another_number_of_workers_ends_with_the_same_bits(
    by_cluster: bool, tmp_path: Path
) -> None:
    whole = flowgraph("run", LETTERS, *SETTINGS, "--run-dir", str(tmp_path / "whole"))
    folder = tmp_path / "run"
    interrupted(folder)
    before = (folder / "plan.fgplan").read_bytes()
    options = ["--pin", "lm.ranks=2", "--pin", "host.replicas=3"]
    if by_cluster:
        cluster = tmp_path / "four.yaml"
        cluster.write_text(FOUR_CORES)
        options += ["--cluster", str(cluster)]
    resumed = flowgraph("resume", str(folder), *options)
    for name in ("steps", "weights_digest", "initial_digest", "samples", "updates"):
        assert resumed[name] == whole[name], name
    names = {worker["name"] for worker in resumed["workers"]}
    assert {"host-2", "lm.gang-1"} <= names
    assert steps_of(folder) == list(range(40))
    assert (folder / "plan-1.fgplan").read_bytes() == before
    assert decode((folder / "plan.fgplan").read_bytes()).group("host").replicas == 3


@pytest.mark.slow
def test_what_would_change_the_bits_of_an_exact_run_is_refused_and_nothing_is_touched(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    interrupted(folder)
    before = sorted(os.listdir(folder))
    command = [*COMMAND, "resume", str(folder), "--pin", "schedule.chunk=4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "chunks of 2: with others its bits would change" in done.stderr
    assert sorted(os.listdir(folder)) == before


def test_pins_of_the_old_plan_stay_unless_another_value_is_given() -> None:
    old = plan_of(GRAPHS / "letters.py", pins={"lm.ranks": 2, "host.replicas": 2})
    new = replanned(old, None, ("host.replicas=3",), exact=True)
    assert (new.group("lm.gang").replicas, new.group("host").replicas) == (2, 3)
    assert dict(new.graph.pins) == {"lm.ranks": 2, "host.replicas": 3, "schedule.chunk": 2}
    assert new.schedule.chunk == old.schedule.chunk


def test_a_decision_that_does_not_exist_is_refused() -> None:
    old = plan_of(GRAPHS / "letters.py")
    with pytest.raises(ConfigurationError, match="there is no such decision"):
        replanned(old, None, ("nobody.ranks=3",), exact=False)
