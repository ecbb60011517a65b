"""A worker with a real model is lost, and the run's bits are those of the uninterrupted run."""

import random

import pytest

from tests.runtime.orchestrator.live import EVERYBODY, Loss
from tests.runtime.orchestrator.losses import RUNS, check, uninterrupted, victims, workers


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("kind", ["host", "engine", "gang", EVERYBODY])
@pytest.mark.parametrize("third", [0, 1, 2])
def test_a_worker_lost_at_an_event_of_each_third_of_a_run_leaves_no_trace_in_its_result(
    name: str, kind: str, third: int
) -> None:
    names = [worker for worker in victims(name) if kind in worker]
    if not names:
        pytest.skip(f"'{name}' has no {kind}")
    draw = random.Random(f"{name} {kind} {third}")
    _, events = uninterrupted(name)
    at = (third * events + draw.randrange(events)) // 3
    worker = draw.choice(names)
    live = check(name, Loss(at, worker), seed=third)
    rolled_back = kind in ("gang", EVERYBODY) and live.replaced
    assert live.attempts == (2 if rolled_back else 1)


@pytest.mark.parametrize("name", RUNS)
def test_several_losses_in_one_run_leave_none_either(name: str) -> None:
    draw = random.Random(name)
    _, events = uninterrupted(name)
    losses = [Loss(draw.randrange(events), draw.choice(workers(name))) for _ in range(5)]
    check(name, *losses, seed=7)
