"""Several layouts of a part at once: as good as trying all mixtures, with a bound that holds."""

from dataclasses import replace

import pytest

from flowgraph.passes.matching.counting import count_devices
from flowgraph.passes.matching.ilp import Undecided
from flowgraph.passes.matching.mixed import solve_mixed
from flowgraph.passes.matching.mixture import Mixture, check_mixed
from flowgraph.passes.matching.problem import Choice, Nodes, Option, Part, Problem, fits
from flowgraph.passes.matching.solve import solve
from tests.passes.matching_instances import brute_force_mixed, instances

IN_CI = 60


@pytest.mark.parametrize("first", range(0, IN_CI, 20))
def test_no_mixture_is_better_on_up_to_eight_devices(first: int) -> None:
    for seed, problem in list(instances(IN_CI))[first : first + 20]:
        for whole in ((), ("p0",)):
            found, best = solve_mixed(problem, whole=whole), brute_force_mixed(problem, whole)
            if found is None or best is None:
                assert found is None, seed
                assert best is None, seed
                continue
            assert check_mixed(problem, found, whole) == [], seed
            assert found.rate == pytest.approx(best[0]), seed
            assert found.slack == pytest.approx(best[1], abs=1e-6), seed
            assert found.devices == best[2], seed
            assert found.gap == 0.0, seed


def test_mixing_is_never_slower_than_one_option_a_part() -> None:
    for seed, problem in instances(40):
        one, mixed = solve(problem), solve_mixed(problem)
        if one is not None:
            assert mixed is not None, seed
            assert mixed.rate >= one.rate * (1 - 1e-7), seed


def two_kinds() -> Problem:
    """One part can fill neither kind alone with what the other part leaves."""
    options = (
        Option(name="fast", kind="a", rate=3.0, piece=2),
        Option(name="slow", kind="b", rate=1.0),
    )
    parts = tuple(Part(name=name, options=options) for name in ("p", "q"))
    return Problem(parts, (Nodes(kind="a", devices=6), Nodes(kind="b", devices=3)))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_part_runs_on_two_kinds_at_once_where_that_is_faster(solver: str) -> None:
    mixed, one = solve_mixed(two_kinds(), solver=solver), solve(two_kinds())
    assert mixed is not None
    assert one is not None
    assert (mixed.rate, one.rate) == (6.0, 3.0)
    assert sorted(len(own) for own in mixed.choices.values()) == [1, 2]
    assert (mixed.by, mixed.gap) == (solver, 0.0)


def test_a_part_named_whole_keeps_one_option() -> None:
    mixed = solve_mixed(two_kinds(), whole=("p", "q"))
    assert mixed is not None
    assert mixed.rate == 3.0
    assert all(len(own) == 1 for own in mixed.choices.values())


def test_with_a_tolerance_no_replica_is_kept_that_the_rate_does_not_need() -> None:
    easy = Problem(
        (
            Part(name="p", options=(Option(name="one", kind="a", rate=1.0, most=2),)),
            Part(name="q", options=(Option(name="one", kind="a", rate=1.0),)),
        ),
        (Nodes(kind="a", devices=9),),
    )
    mixed = solve_mixed(easy, tolerance=0.01)
    assert mixed is not None
    assert (mixed.rate, mixed.devices) == (2.0, 4)
    assert check_mixed(easy, mixed) == []


def test_without_time_nothing_is_claimed() -> None:
    with pytest.raises(Undecided):
        solve_mixed(two_kinds(), seconds=0.0)


def test_what_is_wrong_with_a_mixture_is_said() -> None:
    problem = two_kinds()
    right = solve_mixed(problem)
    assert right is not None
    fast, slow = problem.parts[0].options
    two = (Choice(fast, 1), Choice(slow, 3))
    wrong: list[tuple[Mixture, tuple[str, ...], str]] = [
        (replace(right, choices={}), (), "p runs no options of its own"),
        (replace(right, choices={"p": two, "q": ()}), (), "q runs no options of its own"),
        (replace(right, choices={"p": two, "q": two}), ("p",), "p runs 2 options, and may run one"),
        (replace(right, choices={"p": two * 2, "q": two}), (), "p names an option twice"),
        (replace(right, rate=7.0, bound=7.0), (), "p is slower than the 7 steps/s stated"),
        (replace(right, rate=1.0), (), "p has more slack than the 0 steps/s stated"),
        (replace(right, devices=1), (), "9 devices are used, 1 stated"),
        (replace(right, bound=1.0), (), "faster than its own bound of 1 steps/s"),
        (
            replace(right, choices={"p": two, "q": two}),
            (),
            "no node of 'b' has room for a piece of 1 devices",
        ),
        (
            replace(right, choices={"p": (Choice(slow, 0),), "q": two}),
            (),
            "p has 0 replicas of slow",
        ),
    ]
    for mixture, whole, message in wrong:
        assert message in check_mixed(problem, mixture, whole), message


def test_by_count_alone_no_mixture_is_faster() -> None:
    for seed, problem in instances(IN_CI):
        total = sum(nodes.devices * nodes.count for nodes in problem.nodes)
        parts = tuple(
            replace(
                part,
                options=tuple(
                    replace(o, kind="a", piece=1, pieces=o.devices, least=1) for o in part.options
                ),
            )
            for part in problem.parts
        )
        flat = Problem(parts, (Nodes(kind="a", devices=total),))
        found, best = count_devices(flat), brute_force_mixed(flat)
        assert (found and found.rate) == (best and pytest.approx(best[0])), seed
        if found is not None and best is not None:
            assert found.devices <= total, seed
            chosen = [choice for own in found.choices.values() for choice in own]
            assert fits(flat, chosen), seed
            assert all(c.replicas <= c.option.most for c in chosen), seed
            assert min(sum(c.rate for c in own) for own in found.choices.values()) == found.rate


def test_the_count_of_devices_bounds_every_answer_on_kinds_and_nodes() -> None:
    for seed, problem in instances(IN_CI):
        best, bound = brute_force_mixed(problem), count_devices(problem)
        if best is not None:
            assert bound is not None, seed
            assert best[0] <= bound.rate * (1 + 1e-9), seed
