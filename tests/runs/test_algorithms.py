"""Algorithms from the graph to the weights: credit, references, groups, calls side by side."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from flowgraph.ir.plan import Plan
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, RunResult, StepFinished
from flowgraph.runtime.reference.executor import run_reference
from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, plan_of, run

GAMES = GRAPHS / "games.py"
JOINED = GRAPHS / "joined.py"


def steps_of(plan: Plan, folder: Path) -> tuple[list[Mapping[str, float]], RunResult]:
    """The reference executor's figures of the first trained module, step by step."""
    figures: list[Mapping[str, float]] = []
    module = plan.graph.by_op("train")[0].modules[0]

    def observe(progress: Progress) -> None:
        if isinstance(progress, StepFinished):
            figures.append(progress.metrics[module])

    result = run_reference(plan, RunOptions(run_dir=str(folder)), observe)
    return figures, result


def test_ppo_gives_credit_by_group_and_trains(tmp_path: Path) -> None:
    plan = plan_of(GAMES, {"steps": "2"})
    figures, result = steps_of(plan, tmp_path / "run")
    assert result.weights_digest["player"] != result.initial_digest["player"]
    assert all(step["grad_norm"] > 0 for step in figures)


def test_a_groups_size_divides_the_calls_of_a_sample_or_the_run_says_where_not(
    tmp_path: Path,
) -> None:
    _, result = steps_of(plan_of(GAMES, {"steps": "1", "size": "2"}), tmp_path / "run")
    assert result.updates == {"player": 1}
    named = "sample 0 has 4 rows, which groups of 3 do not divide"
    with pytest.raises(StageFailed, match=named) as caught:
        steps_of(plan_of(GAMES, {"steps": "1", "size": "3"}), tmp_path / "failed")
    assert caught.value.sample == 0, "it can be replayed"


def test_the_divergence_from_a_reference_is_0_at_first_and_then_is_not(tmp_path: Path) -> None:
    plan = plan_of(GAMES, {"kl": "0.1", "steps": "4"})
    assert plan.graph.module("player-before").starts_as == "player"
    # The trainer scores the reference itself: no worker is there for it alone.
    assert {group.name for group in plan.groups} == {"host", "player.engine", "player.gang"}
    figures, _ = steps_of(plan, tmp_path / "run")
    assert figures[0]["reference_kl"] == 0.0
    assert all(step["reference_kl"] > 0 for step in figures[1:])


@pytest.mark.slow
def test_with_a_reference_exact_runs_give_the_same_weights_whatever_the_plan(
    tmp_path: Path,
) -> None:
    settings = {"kl": "0.1"}
    plan = plan_of(GAMES, settings, {"player.ranks": 2})
    expected = reference(plan_of(GAMES, settings), tmp_path / "reference", steps=3, exact=True)
    result = run(plan, tmp_path / "run", exact=True)
    assert dict(result.weights_digest) == expected["trained"]
    without = reference(plan_of(GAMES, {"kl": "0"}), tmp_path / "without", steps=3, exact=True)
    assert without["trained"]["player"] != expected["trained"]["player"]


@pytest.mark.slow
def test_calls_side_by_side_give_the_same_weights_with_one_engine_and_with_two(
    tmp_path: Path,
) -> None:
    settings = {"game": "together"}
    one = plan_of(GAMES, settings)
    two = plan_of(GAMES, settings, {"player.engines": 2, "helper.engines": 2, "host.replicas": 2})
    expected = reference(one, tmp_path / "reference", steps=3, exact=True)
    alone = run(one, tmp_path / "one", exact=True)
    twice = run(two, tmp_path / "two", exact=True)
    assert len(twice.workers) == len(alone.workers) + 3
    assert dict(alone.weights_digest) == expected["trained"] == dict(twice.weights_digest)
    for module, digest in expected["trained"].items():
        assert digest != expected["initial"][module], f"{module} was not trained"


@pytest.mark.parametrize("shown", ["false", "true"], ids=["in-trainer", "in-stage-worker"])
def test_fields_joined_one_after_the_other_reach_the_loss_wherever_they_are_joined(
    shown: str, tmp_path: Path
) -> None:
    plan = plan_of(JOINED, {"shown": shown})
    train = next(task for task in plan.tasks if task.kind == "train")
    assert len(train.stages) == (1 if shown == "true" else 3)
    figures, _ = steps_of(plan, tmp_path / "run")
    # Line i of the first 8 starts with i and has 4 + i % 5 tokens, all but the first counted.
    lengths = [4 + i % 5 for i in range(8)]
    counted = sum(length - 1 for length in lengths)
    weights = sum(i * (length - 1) for i, length in enumerate(lengths))
    places = sum(sum(range(length)) for length in lengths)
    assert figures[0]["weight"] == pytest.approx(weights / counted)
    assert figures[0]["place"] == pytest.approx(places / counted)
