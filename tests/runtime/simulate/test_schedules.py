"""A thousand seeded schedules of slow, far, cut-off and dying workers keep every law."""

import pytest

from tests.runtime.simulate.schedules import run_schedule, schedule_of

BLOCK = 100


@pytest.mark.parametrize("first", range(0, 1000, BLOCK))
def test_every_schedule_trains_what_the_reference_trains_and_loses_nothing(first: int) -> None:
    for number in range(first, first + BLOCK):
        try:
            run_schedule(schedule_of(number))
        except Exception as error:
            raise AssertionError(
                f"schedule {number}: {error}\n"
                f"replay: python -m tests.runtime.simulate --replay {number}"
            ) from error
