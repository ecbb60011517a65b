"""Devices over parts: as good as trying all splits."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.passes.allocate import Part, Problem, Solution, allocate, check

parts = st.lists(
    st.tuples(st.floats(0, 100), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=4
)


def brute_force(problem: Problem) -> tuple[float, int] | None:
    """Least seconds, then fewest devices, over all splits."""
    ranges = [range(p.least, min(p.most, problem.devices) + 1) for p in problem.parts]
    found = [
        (max(p.seconds / n for p, n in zip(problem.parts, counts, strict=True)), sum(counts))
        for counts in itertools.product(*ranges)
        if sum(counts) <= problem.devices
    ]
    return min(found, default=None)


@settings(max_examples=300, deadline=None)
@given(parts, st.integers(1, 8))
def test_no_split_is_faster_nor_as_fast_with_fewer_devices(
    given_parts: list[tuple[float, int, int]], devices: int
) -> None:
    problem = Problem(
        parts=tuple(
            Part(name=str(i), seconds=seconds, least=least, most=least + more)
            for i, (seconds, least, more) in enumerate(given_parts)
        ),
        devices=devices,
    )
    best, solution = brute_force(problem), allocate(problem)
    if best is None or solution is None:
        assert best is None
        assert solution is None
        return
    assert check(problem, solution) == []
    assert (solution.seconds, sum(solution.counts.values())) == best


def test_two_equal_parts_on_two_devices_get_one_each() -> None:
    pair = Problem(parts=(Part(name="a", seconds=1), Part(name="b", seconds=1)), devices=2)
    solution = allocate(pair)
    assert solution is not None
    assert solution.counts == {"a": 1, "b": 1}


def test_what_is_wrong_with_a_solution_is_said() -> None:
    problem = Problem(parts=(Part(name="a", seconds=4, least=1, most=2),), devices=2)
    wrong = Solution(counts={"a": 3}, seconds=1.0, slowest="a")
    assert check(problem, wrong) == [
        "a has 3 devices, not 1 to 2",
        "3 devices used of 2",
    ]
    slow = Solution(counts={"a": 2}, seconds=1.0, slowest="a")
    assert check(problem, slow) == ["a takes longer than the 1.0 s stated"]
