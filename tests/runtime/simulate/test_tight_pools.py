"""Pools that are too small: a run goes on as if they were not, or ends saying what has no room."""

import random
from dataclasses import replace

import pytest

from flowgraph.runtime.simulate import SimResult, simulate
from flowgraph.runtime.simulate.ledger import digest_of, reference_entries
from flowgraph.runtime.simulate.workload import Workload
from tests.runtime.simulate.laws import check_state
from tests.runtime.simulate.schedules import Schedule, schedule_of

LARGER = "larger than a whole pool"


def simulated(schedule: Schedule) -> SimResult:
    return simulate(
        schedule.plan,
        steps=schedule.steps,
        seed=schedule.number,
        faults=schedule.faults,
        times=schedule.times,
        exact=schedule.exact,
        source_size=schedule.source_size,
        checkpoint_every=schedule.checkpoint_every,
        start_s=0.01,
        watch=check_state,
    )


def tight(schedule: Schedule, roomy: SimResult) -> SimResult | None:
    """With a part of the room that it took before; None when a block alone takes more."""
    most = max(roomy.queue["pools"].values(), default=0)
    share = random.Random(f"room {schedule.number}").uniform(0.3, 0.95)
    plan = replace(schedule.plan, pool_bytes=max(1, int(most * share)))
    try:
        return simulated(replace(schedule, plan=plan))
    except Exception as error:
        if LARGER in str(error):
            return None
        raise


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_a_run_with_little_room_ends_as_ever_or_says_who_finds_none(first: int) -> None:
    ends = set()
    for number in range(first, first + 15):
        schedule = schedule_of(number)
        result = tight(schedule, simulated(schedule))
        if result is None:
            continue
        ends.add(result.outcome)
        if result.outcome == "failed":
            assert "waits for room for" in result.cause
            continue
        assert result.outcome == "finished", f"schedule {number}: {result.outcome} {result.cause}"
        expected = reference_entries(
            schedule.plan,
            steps=schedule.steps,
            exact=schedule.exact,
            keeps=Workload(schedule.plan, number).keeps,
            source_size=schedule.source_size,
        )
        assert result.trained == digest_of(expected, exact=schedule.exact)
    assert ends == {"finished", "failed"}
