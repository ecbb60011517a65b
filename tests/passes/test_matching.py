"""Layouts over parts: as good as trying all of them, whatever the solver and the nodes."""

import subprocess
import sys
from dataclasses import replace

import pytest

from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.passes.match_throughput import MatchThroughput
from flowgraph.passes.matching.ilp import Undecided, cheapest
from flowgraph.passes.matching.problem import (
    Choice,
    Nodes,
    Option,
    Part,
    Problem,
    Solution,
    check,
    efficient,
    fits,
)
from flowgraph.passes.matching.solve import solve
from flowgraph.passes.pipeline import PIPELINE, run_passes
from tests.passes.graphs import gpus, vlm
from tests.passes.matching_instances import brute_force, instance, instances, packs, pruned

IN_CI = 200


@pytest.mark.parametrize("first", range(0, IN_CI, 50))
def test_no_choice_of_layouts_is_better_on_up_to_eight_devices(first: int) -> None:
    for seed in range(first, first + 50):
        problem = instance(seed)
        solution, best = solve(problem), brute_force(pruned(problem))
        if best is None or solution is None:
            assert solution is None, seed
            assert best is None, seed
            continue
        assert check(problem, solution) == [], seed
        assert (solution.rate, solution.slack, solution.devices) == best, seed
        assert solution.gap == 0.0, seed


def test_leaving_out_wasteful_options_makes_no_answer_slower() -> None:
    for seed, problem in instances(100):
        every, kept = brute_force(problem), brute_force(pruned(problem))
        assert (every and every[0]) == (kept and kept[0]), seed


def test_pieces_that_divide_one_another_fit_whenever_their_counts_do() -> None:
    for seed, problem in instances(200):
        choices = [Choice(part.options[0], part.options[0].least) for part in problem.parts]
        assert fits(problem, choices) == packs(problem, choices), seed


def test_two_equal_parts_on_two_devices_get_one_each() -> None:
    options = (Option(name="one", kind="a", rate=1.0),)
    pair = Problem((Part(name="a", options=options), Part(name="b", options=options)), _nodes(2))
    solution = solve(pair)
    assert solution is not None
    assert {name: choice.replicas for name, choice in solution.choices.items()} == {"a": 1, "b": 1}


def test_a_larger_piece_goes_where_a_node_holds_it_whole() -> None:
    whole = Part(name="whole", options=(Option(name="tp4", kind="a", rate=8, piece=4, most=1),))
    spread = Part(name="spread", options=(Option(name="one", kind="a", rate=1.0),))
    halves = Problem((whole, spread), (Nodes(kind="a", devices=3, count=2),))
    assert solve(halves) is None
    even = Problem((whole, spread), (Nodes(kind="a", devices=6),))
    solution = solve(even)
    assert solution is not None
    assert (solution.rate, solution.devices) == (2.0, 6)


def kinds_and_nodes() -> Problem:
    """Counting leaves this open: the fast kind has room for one of the two parts."""
    options = (
        Option(name="fast", kind="a", rate=3.0, piece=2, most=2),
        Option(name="slow", kind="b", rate=2.0, piece=2, most=2),
    )
    parts = tuple(Part(name=name, options=options) for name in ("p", "q"))
    return Problem(parts, (Nodes(kind="a", devices=3), Nodes(kind="b", devices=4)))


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_both_solvers_find_the_best_answer_where_counting_does_not_decide(solver: str) -> None:
    problem = kinds_and_nodes()
    solution = solve(problem, solver=solver)
    assert solution is not None
    assert solution.by == solver
    assert check(problem, solution) == []
    assert (solution.rate, solution.slack, solution.devices) == brute_force(problem)


def test_without_time_the_answer_says_how_far_from_the_best_it_may_be() -> None:
    gaps = []
    for seed, problem in instances(200):
        best = brute_force(problem)
        try:
            hurried = solve(problem, seconds=0.0)
        except Undecided:
            continue
        assert (hurried is None) == (best is None), seed
        if hurried is not None and best is not None:
            assert check(problem, hurried) == [], seed
            assert hurried.rate * (1 - 1e-9) <= best[0] <= hurried.bound * (1 + 1e-9), seed
            gaps += [hurried.gap] if hurried.by == "greedy" else []
    assert len(gaps) > 10
    assert max(gaps) > 0.1


@pytest.mark.parametrize("seed", [2629, 3127])
def test_without_time_what_is_not_found_is_not_called_impossible(seed: int) -> None:
    problem = instance(seed)
    assert brute_force(problem) is not None
    with pytest.raises(Undecided):
        solve(problem, seconds=0.0)


def two_kinds() -> Cluster:
    fast = gpus(1, 4)
    slow = DeviceKind(
        name="old", kind="cuda", flops=(("float32", 2e13),), memory_bytes=40 << 30, bandwidth=5e11
    )
    node = Node(name="m", device="old", devices=4, cores=32, memory_bytes=256 << 30)
    return replace(fast, kinds=(*fast.kinds, slow), nodes=(*fast.nodes, node))


def test_a_plan_says_how_far_from_the_best_it_may_be() -> None:
    def said(step: MatchThroughput) -> tuple[str, float]:
        passes = tuple(step if one.name == step.name else one for one in PIPELINE)
        state = run_passes(passes, vlm(batch=256), two_kinds())
        told = next(d for d in state.decisions if (d.subject, d.name) == ("step", "rate"))
        return told.binding, state.bound_seconds

    proved, bound = said(MatchThroughput())
    assert proved.startswith("no plan is faster (by highs)")
    hurried, looser = said(MatchThroughput(seconds=0.0))
    assert hurried.startswith("at most ")
    assert "slower (by greedy)" in hurried
    assert looser < bound


def test_an_unknown_solver_is_named() -> None:
    problem = kinds_and_nodes()
    offered = [(part.name, [Choice(o, 1) for o in part.options]) for part in problem.parts]
    with pytest.raises(ValueError, match="expects one of highs, cbc, got 'glpk'"):
        cheapest(problem, offered, solver="glpk", seconds=1.0)


def test_pieces_that_do_not_divide_are_refused() -> None:
    options = tuple(Option(name=f"{n}", kind="a", rate=1.0, piece=n) for n in (2, 3))
    with pytest.raises(ValueError, match="pieces of 3 devices do not hold pieces of 2"):
        Problem((Part(name="a", options=options),), _nodes(8))


def test_of_options_the_wasteful_are_left_out() -> None:
    one = Option(name="one", kind="a", rate=2.0)
    slow_pair = Option(name="slow pair", kind="a", rate=3.0, piece=2)
    fast_pair = Option(name="fast pair", kind="a", rate=5.0, piece=2)
    other_kind = Option(name="elsewhere", kind="b", rate=1.0, piece=2)
    kept = efficient(Part(name="p", options=(slow_pair, other_kind, fast_pair, one)))
    assert [option.name for option in kept.options] == ["one", "fast pair", "elsewhere"]


def test_what_is_wrong_with_a_solution_is_said() -> None:
    option = Option(name="one", kind="a", rate=1.0, piece=2, most=2)
    problem = Problem((Part(name="p", options=(option,)),), _nodes(3))
    right = solve(problem)
    assert right is not None
    wrong: list[tuple[Solution, str]] = [
        (replace(right, choices={}, devices=0), "p runs no option of its own"),
        (replace(right, choices={"p": Choice(option, 3)}, devices=6), "p has 3 replicas"),
        (replace(right, rate=2.0, bound=2.0), "p is slower than the 2 steps/s stated"),
        (replace(right, rate=0.5), "p has more slack than the 0 steps/s stated"),
        (replace(right, devices=1), "2 devices are used, 1 stated"),
        (replace(right, bound=0.5), "faster than its own bound of 0.5 steps/s"),
        (
            replace(right, choices={"p": Choice(option, 2)}, rate=2.0, bound=2.0, devices=4),
            "no node of 'a' has room for a piece of 2 devices",
        ),
    ]
    for solution, message in wrong:
        assert message in check(problem, solution)


def test_another_use_of_the_solver_in_the_process_does_not_matter() -> None:
    import pulp

    program = pulp.LpProblem("other", pulp.LpMinimize)
    x = program.add_variable("x", 0, 1, pulp.LpBinary)
    program += x
    program += x >= 1
    program.solve(pulp.HiGHS(msg=False, threads=2))
    solution = solve(kinds_and_nodes())
    assert solution is not None
    assert (solution.by, solution.gap) == ("highs", 0.0)


def test_solving_says_nothing_on_standard_output() -> None:
    code = (
        "from tests.passes.test_matching import kinds_and_nodes\n"
        "from flowgraph.passes.matching.solve import solve\n"
        "assert solve(kinds_and_nodes()).by == 'highs'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def _nodes(devices: int) -> tuple[Nodes, ...]:
    return (Nodes(kind="a", devices=devices),)
