"""Trainers that take turns: as early done as trying all assignments and residents."""

import itertools
import random
from dataclasses import replace

import pytest

from flowgraph.passes.binding.solve import heuristic, solve_turns
from flowgraph.passes.binding.turns import (
    Job,
    TurnProblem,
    Turns,
    check,
    holds,
    in_order,
    least_seconds,
    makespan,
)


def instance(seed: int, jobs: int = 5) -> TurnProblem:
    draw = random.Random(seed)
    return TurnProblem(
        jobs=tuple(
            Job(
                name=f"j{i}",
                ready=draw.choice((0.0, 1.0, 2.5, 4.0)),
                seconds=draw.choice((1.0, 2.0, 3.5)),
                swap=draw.choice((0.0, 0.5, 1.0)),
                memory=draw.choice((1, 2, 3)),
            )
            for i in range(draw.randint(1, jobs))
        ),
        groups=draw.randint(1, 3),
        memory=draw.choice((3, 4, 6)),
    )


def brute_force(problem: TurnProblem) -> float:
    """The earliest end over all assignments, all orders in each group, and all residents."""
    names = [job.name for job in problem.jobs]
    best = float("inf")
    for where in itertools.product(range(problem.groups), repeat=len(names)):
        ends = [
            _group_end([j for j, g in zip(problem.jobs, where, strict=True) if g == i], problem)
            for i in range(problem.groups)
        ]
        best = min(best, max(ends))
    return best


def _group_end(jobs: list[Job], problem: TurnProblem) -> float:
    best = float("inf")
    for stays in itertools.product((False, True), repeat=len(jobs)):
        resident = {job.name for job, stay in zip(jobs, stays, strict=True) if stay}
        if not holds(jobs, resident, problem.memory):
            continue
        for order in itertools.permutations(jobs):
            now = 0.0
            for job in order:
                swap = 0.0 if job.name in resident else job.swap
                now = max(now, job.ready) + job.seconds + swap
            best = min(best, now)
    return best


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_no_turns_are_done_earlier(first: int) -> None:
    for seed in range(first, first + 20):
        problem = instance(seed)
        turns = solve_turns(problem)
        assert turns is not None
        assert check(problem, turns) == [], seed
        assert turns.seconds == pytest.approx(brute_force(problem)), seed


def test_the_heuristic_is_legal_and_says_how_far_from_the_best_it_may_be() -> None:
    for seed in range(40):
        problem = instance(seed)
        quick = heuristic(problem)
        assert check(problem, quick) == [], seed
        best = brute_force(problem)
        assert least_seconds(problem) <= best * (1 + 1e-9), seed
        assert quick.seconds * (1 - quick.gap) <= best * (1 + 1e-9), seed


def test_beyond_a_few_jobs_the_heuristic_answers() -> None:
    many = tuple(Job(name=f"j{i}", ready=i % 5, seconds=1.0 + i % 3) for i in range(40))
    turns = solve_turns(TurnProblem(jobs=many, groups=4, memory=1))
    assert turns is not None
    assert turns.by == "heuristic"
    assert turns.gap < 0.05


def test_who_is_ready_first_goes_first_and_of_those_the_longest() -> None:
    jobs = (
        Job(name="late", ready=2, seconds=1),
        Job(name="short", ready=0, seconds=1),
        Job(name="long", ready=0, seconds=5),
    )
    assert [job.name for job in in_order(jobs)] == ["long", "short", "late"]
    assert makespan(jobs, ()) == 7


def test_a_job_that_fits_no_device_has_no_turn() -> None:
    big = TurnProblem(jobs=(Job(name="big", ready=0, seconds=1, memory=5),), groups=1, memory=4)
    assert solve_turns(big) is None


def test_what_is_wrong_with_turns_is_said() -> None:
    jobs = (
        Job(name="a", ready=0, seconds=1, swap=1, memory=2),
        Job(name="b", ready=0, seconds=1, swap=1, memory=2),
    )
    problem = TurnProblem(jobs=jobs, groups=1, memory=3)
    right = solve_turns(problem)
    assert right is not None
    assert right.seconds == 4.0
    wrong: list[tuple[Turns, str]] = [
        (replace(right, group={"a": 0}), "not every job has a group"),
        (replace(right, group={"a": 0, "b": 1}), "group 1 of 1"),
        (replace(right, resident=frozenset({"c"})), "residents that are no jobs"),
        (replace(right, resident=frozenset({"a", "b"})), "group 0 needs more than 3 bytes"),
        (replace(right, seconds=1.0, bound=1.0), "group 0 is done after 4 s, not 1 s"),
        (replace(right, bound=9.0), "done before its own bound of 9 s"),
    ]
    for turns, message in wrong:
        assert any(said.startswith(message) for said in check(problem, turns)), message
