"""Virtual time, and cores that jobs share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.simulate.clock import Clock, Cores


def ends(jobs: list[tuple[float, float]], cores: int, background: float = 0.0) -> list[float]:
    """When each (start, work) ends."""
    clock = Clock()
    shared = Cores(clock, cores, background)
    found = [0.0] * len(jobs)

    def done(number: int) -> None:
        found[number] = clock.now

    for number, (start, work) in enumerate(jobs):
        clock.at(start, lambda n=number, w=work: shared.start(w, lambda: done(n)))  # type: ignore[misc]
    while clock.turn():
        pass
    return found


def stepwise(jobs: list[tuple[float, float]], cores: int) -> list[float]:
    """The same by the definition: between two events every job runs at one rate."""
    left = {n: work for n, (_, work) in enumerate(jobs)}
    found = [0.0] * len(jobs)
    now = 0.0
    while left:
        active = [n for n in left if jobs[n][0] <= now]
        coming = [jobs[n][0] - now for n in left if jobs[n][0] > now]
        if not active:
            now += min(coming)
            continue
        rate = min(1.0, cores / len(active))
        step = min([left[n] / rate for n in active] + coming)
        now += step
        for n in active:
            left[n] -= step * rate
            if left[n] <= 1e-9:
                del left[n]
                found[n] = now
    return found


def test_jobs_on_free_cores_take_their_own_time() -> None:
    assert ends([(0.0, 1.0), (0.5, 2.0)], cores=2) == [1.0, 2.5]


def test_three_jobs_on_two_cores_share_them_until_one_ends() -> None:
    assert ends([(0.0, 2.0), (0.0, 2.0), (0.0, 2.0)], cores=2) == pytest.approx([3.0, 3.0, 3.0])


def test_processes_of_others_take_their_share() -> None:
    assert ends([(0.0, 1.0)], cores=2, background=3.0) == pytest.approx([2.0])


@given(
    jobs=st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 5)), min_size=1, max_size=8),
    cores=st.integers(1, 4),
)
def test_sharing_equals_its_definition(jobs: list[tuple[float, float]], cores: int) -> None:
    assert ends(jobs, cores) == pytest.approx(stepwise(jobs, cores), abs=1e-6)


def test_what_is_due_at_once_happens_in_the_order_of_asking() -> None:
    clock = Clock()
    seen: list[int] = []
    for number in range(5):
        clock.at(1.0, lambda n=number: seen.append(n))  # type: ignore[misc]
    while clock.turn():
        pass
    assert seen == [0, 1, 2, 3, 4]
    assert clock.now == 1.0
