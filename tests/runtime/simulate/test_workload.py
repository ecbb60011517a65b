"""What the simulated data is like: drawn by identity, with the means and tails that were said."""

from dataclasses import replace
from statistics import fmean, quantiles
from typing import Any

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.simulate.workload import Lengths, Workload
from tests.passes.graphs import filtered, laptop, marl


def plan(**expect: Any) -> Plan:
    graph = marl(batch=4, tries=4)
    solver = replace(graph.agent("solver"), expect=expect, sampling={})
    return compile_graph(replace(graph, agents=(solver, *graph.agents[1:])), laptop())


def turns(work: Workload, agent: str, samples: int = 500) -> list[Any]:
    return [
        turn
        for sample in range(samples)
        for calls in work.play("games", 0, sample, 0)
        for turn in calls
        if turn.agent == agent
    ]


def test_a_draw_is_the_same_whenever_and_however_often_it_is_asked_for() -> None:
    first, second = Workload(plan(calls=1.5), 3), Workload(plan(calls=1.5), 3)
    forward = [first.play("games", 0, s, 0) for s in range(50)]
    backward = [second.play("games", 0, s, 0) for s in reversed(range(50))]
    assert forward == backward[::-1]
    assert forward != [Workload(plan(calls=1.5), 4).play("games", 0, s, 0) for s in range(50)]


def test_a_mean_between_two_numbers_is_met_by_both() -> None:
    work = Workload(plan(calls=1.4, prompt=8, response=2.25), 0)
    found = turns(work, "solver", 2000)
    assert len(found) / 2000 == pytest.approx(1.4, abs=0.05)
    assert {turn.response for turn in found} == {2, 3}
    assert fmean(turn.response for turn in found) == pytest.approx(2.25, abs=0.05)


def test_a_spread_has_its_mean_and_its_tail() -> None:
    spread = {"mean": 20.0, "p95": 60.0}
    found = turns(Workload(plan(calls=1, response=spread), 0), "solver", 8000)
    lengths = [turn.response for turn in found]
    assert fmean(lengths) == pytest.approx(20, rel=0.05)
    assert quantiles(lengths, n=20)[-1] == pytest.approx(60, rel=0.1)


def test_agents_call_after_those_that_they_come_after() -> None:
    rounds = Workload(plan(calls=1), 0).play("games", 0, 0, 0)
    assert [[turn.agent for turn in calls] for calls in rounds] == [["solver"], ["verifier"]]


def test_an_evaluation_plays_each_sample_once() -> None:
    made = plan(calls=1)
    work = Workload(made, 0)
    stream = made.task("train-solver").inputs[0]
    assert work.records(stream, 0, 7) == 4
    assert work.records(stream, 1, 7) == 1


def test_a_filter_keeps_the_share_that_it_is_expected_to() -> None:
    work = Workload(compile_graph(filtered(batch=8), laptop()), 0)
    assert fmean(work.keeps(sample) for sample in range(4000)) == pytest.approx(0.5, abs=0.03)


def test_lengths_of_a_run_take_the_place_of_what_was_expected() -> None:
    seen = Lengths(responses={"solver": (7.0,)}, prompts={"solver": (5.0,)})
    found = turns(Workload(plan(calls=1, response=2), 0, seen), "solver", 20)
    assert {(turn.prompt, turn.response) for turn in found} == {(5, 7)}
