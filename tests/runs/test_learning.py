"""A cut-down look at what `make learn` shows in full: both examples learn, on one seed."""

from pathlib import Path

import pytest

from flowgraph.runtime.progress import EvaluationFinished, Progress
from tests.runs.running import ROOT, plan_of, run


@pytest.mark.slow
def test_both_agents_rewards_rise_within_a_hundred_steps(tmp_path: Path) -> None:
    graph = ROOT / "examples" / "marl_arithmetic.py"
    plan = plan_of(graph, {"steps": "100", "eval_samples": "8"})
    metrics = run(plan, tmp_path / "run").metrics
    for agent in ("solver", "verifier"):
        reward = metrics[agent]["reward"]
        assert 0.0 <= reward["first"] <= reward["last"] - 0.1 <= 0.9, (agent, reward)


@pytest.mark.slow
def test_the_language_model_reads_digits_that_it_was_not_trained_on(tmp_path: Path) -> None:
    graph = ROOT / "examples" / "vlm_digits.py"
    plan = plan_of(graph, {"steps": "300", "eval_samples": "256"})
    evaluations: list[float] = []

    def watch(progress: Progress) -> None:
        if isinstance(progress, EvaluationFinished):
            evaluations.append(progress.figures["digit"])

    run(plan, tmp_path / "run", observe=watch)
    assert evaluations[0] <= 0.2  # near chance: ten digits
    assert evaluations[-1] >= 0.3
