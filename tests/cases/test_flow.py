"""Flow, waiting, loss of work: F1 and F4 of the faults that people hit in systems like this one."""

import os
import signal
import time
from pathlib import Path

import pytest

from flowgraph.runtime.progress import Progress, Restarted, StepFinished, WorkerStarted
from flowgraph.runtime.shell import RunAborted
from tests.cases.epochs import IDS, Epoch, plan_of
from tests.runs import running
from tests.runtime.orchestrator.world import Kill

LETTERS = running.GRAPHS / "letters.py"
POISONED = running.GRAPHS / "poisoned.py"


class AllProducers:
    """Kills every process that makes rows, at the end of a step."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._pids: dict[str, int] = {}
        self.restarts: list[Restarted] = []

    def __call__(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self._pids[progress.name] = progress.pid
            case Restarted():
                self.restarts.append(progress)
            case StepFinished() if progress.step == self._step:
                for name in ("host-0", "host-1"):
                    os.kill(self._pids[name], signal.SIGKILL)


@pytest.mark.slow
def test_f1_when_every_producer_of_a_stream_is_killed_others_take_their_place(
    tmp_path: Path,
) -> None:
    plan = running.plan_of(LETTERS, {"steps": "5"}, {"host.replicas": 2})
    whole = running.run(plan, tmp_path / "whole", exact=True)
    killer = AllProducers(step=1)
    result = running.run(plan, tmp_path / "run", exact=True, observe=killer, restarts=2)
    assert sorted(restart.worker for restart in killer.restarts) == ["host-0", "host-1"]
    assert result.weights_digest == whole.weights_digest
    assert result.samples == whole.samples


@pytest.mark.slow
def test_f1_when_producers_die_again_and_again_the_run_ends_naming_stage_exit_and_last_item(
    tmp_path: Path,
) -> None:
    plan = running.plan_of(POISONED, {"bad": "13", "how": "exits"}, {"host.replicas": 2})
    began = time.monotonic()
    with pytest.raises(RunAborted) as caught:
        running.run(plan, tmp_path / "run", exact=True, restarts=3)
    assert time.monotonic() - began < 120.0
    assert "stage 'lines, check'" in caught.value.what
    assert "exited with status 7" in caught.value.what
    assert "while it held sample 13 and nothing else" in caught.value.what
    assert caught.value.sample == 13


def lost_at(event: int, worker: str) -> Kill:
    return lambda number: worker if number == event else None


@pytest.mark.parametrize("filters", [False, True])
@pytest.mark.parametrize("worker", ["host-0", "vit.gang-0", "lm.gang-0"])
def test_f4_after_a_crash_at_each_event_every_id_is_trained_once_and_steps_go_on_by_one(
    worker: str, filters: bool
) -> None:
    plan = plan_of(filters=filters)
    whole = Epoch(plan)
    whole.run()
    kept = [sample for sample in range(IDS) if not filters or sample != 3]
    trained = kept[: len(kept) // 2 * 2]  # the policy drops an incomplete step
    assert whole.ids() == dict.fromkeys(trained, 1)
    for event in range(whole.events):
        epoch = Epoch(plan)
        world = epoch.run(lost_at(event, worker))
        assert epoch.ids() == whole.ids(), f"{worker} lost at event {event}"
        assert epoch.ids("encode") == {}, "only trained ids are counted"
        assert epoch.steps == list(range(len(trained) // 2)), f"{worker} lost at event {event}"
        for record in world.state.records.values():
            assert record.in_flight == 0
