"""F4 and V3 with real processes: whatever ends a run and whenever, each sample is trained once."""

from itertools import combinations
from pathlib import Path

import pytest

from tests.cases.processes import Whole, dropped, events, stopped_and_resumed, trained, whole_run

pytestmark = pytest.mark.slow

STEPS = 5
HOW = ("SIGKILL", "SIGINT", "SIGKILL")


@pytest.fixture(scope="module")
def epoch(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Seventeen lines, of which a filter passes eleven: five steps, and one line is left over."""
    whole = whole_run(tmp_path_factory.mktemp("epoch") / "epoch")
    assert whole.result.steps == STEPS
    assert set(trained(whole.folder).values()) == {1}
    reasons = {reason for _, reason in dropped(whole.folder)}
    assert len(reasons) == 2, "a filter's, and that of a row too short for a line"
    return whole


def test_v3_and_f4_an_epoch_ended_three_times_consumes_every_sample_once(
    epoch: Whole, tmp_path: Path
) -> None:
    """After a step, at an event amid one, and after a later step; `soak` has all of them."""
    half = events(epoch.folder) // 2
    moments = ["step:1:SIGKILL", f"event:{half}", "step:4:SIGINT"]
    stopped_and_resumed(epoch, tmp_path / "run", moments)


@pytest.mark.soak
@pytest.mark.parametrize("stops", list(combinations(range(1, STEPS + 1), 3)), ids=str)
def test_v3_an_epoch_stopped_and_resumed_three_times_consumes_every_sample_once(
    stops: tuple[int, ...], epoch: Whole, tmp_path: Path
) -> None:
    moments = [f"step:{step}:{how}" for step, how in zip(stops, HOW, strict=True)]
    stopped_and_resumed(epoch, tmp_path / "run", moments)


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Ids 0 to 7, two a step."""
    whole = whole_run(tmp_path_factory.mktemp("eight") / "eight", length="8", filtered="false")
    assert trained(whole.folder) == dict.fromkeys(range(8), 1)
    assert whole.result.steps == 4
    return whole


@pytest.mark.soak
def test_f4_after_the_orchestrator_is_killed_at_each_event_in_turn_every_id_is_trained_once(
    eight: Whole, tmp_path: Path
) -> None:
    for event in range(1, events(eight.folder) + 1):
        stopped_and_resumed(eight, tmp_path / f"{event}", [f"event:{event}"])
