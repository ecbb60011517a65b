"""Encoder and backbone apart: V3 of the faults that people hit in systems like this one."""

from itertools import combinations

import pytest

from flowgraph.runtime.progress import StepFinished
from tests.cases.epochs import Epoch, plan_of


def stop_after(epoch: Epoch, step: int) -> None:
    """Run until the step is taken and saved, then stop, with whatever was under way."""
    world = epoch.attempt()
    while not world.commits or world.commits[-1].step <= step:
        world.run_some(1)
    assert any(isinstance(p, StepFinished) and p.step == step for p in world.progress)
    epoch.take(world)


@pytest.mark.parametrize("filters", [False, True])
def test_v3_an_epoch_stopped_and_resumed_three_times_consumes_every_sample_once(
    filters: bool,
) -> None:
    plan = plan_of(filters=filters)
    whole = Epoch(plan)
    last = whole.run()
    steps = len(whole.steps)
    assert steps >= 3
    for stops in combinations(range(steps), 3):
        epoch = Epoch(plan)
        for step in stops:
            stop_after(epoch, step)
        world = epoch.run()
        assert epoch.attempts == 4
        assert epoch.ids() == whole.ids(), f"stopped after steps {stops}"
        assert epoch.steps == whole.steps, f"stopped after steps {stops}"
        assert world.result is not None
        assert last.result is not None
        assert world.result.samples == last.result.samples
