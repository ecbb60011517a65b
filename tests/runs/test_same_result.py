"""Law 1: whatever the plan, the weights are the reference executor's, bit for bit in exact mode."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.runs.reference_process import reference
from tests.runs.running import ROOT, plan_of, run

AGENTS = ROOT / "examples" / "marl_arithmetic.py"
DIGITS = ROOT / "examples" / "vlm_digits.py"
SMALL = {
    AGENTS: {"batch": "8", "tries": "4", "eval_samples": "2"},
    DIGITS: {"batch": "16", "eval_samples": "8"},
}
PINNED = {
    AGENTS: {"solver.engines": 2, "verifier.engines": 2, "solver.ranks": 2, "verifier.ranks": 2},
    DIGITS: {"vit.ranks": 2, "lm.ranks": 2, "host.replicas": 2},
}
STEPS = 5


@pytest.mark.slow
@pytest.mark.parametrize("graph", [AGENTS, DIGITS], ids=["agents", "digits"])
def test_exact_runs_give_the_reference_weights_bit_for_bit_whatever_the_plan(
    graph: Path, tmp_path: Path
) -> None:
    plan = plan_of(graph, SMALL[graph])
    doubled = plan_of(graph, SMALL[graph], PINNED[graph])
    expected = reference(plan, tmp_path / "reference", steps=STEPS, exact=True)
    alone = run(plan, tmp_path / "alone", steps=STEPS, exact=True)
    twice = run(doubled, tmp_path / "twice", steps=STEPS, exact=True)
    assert len(twice.workers) > len(alone.workers)
    assert dict(alone.weights_digest) == expected["trained"] == dict(twice.weights_digest)
    for module, digest in expected["trained"].items():
        assert digest != expected["initial"][module], f"{module} was not trained"


@pytest.mark.slow
def test_by_default_the_first_gradient_of_both_modules_is_the_references_within_1e_5(
    tmp_path: Path,
) -> None:
    plan = plan_of(DIGITS, SMALL[DIGITS], PINNED[DIGITS])
    reference(plan, tmp_path / "reference", steps=1, exact=False, record=True)
    run(plan, tmp_path / "run", steps=1, record=True)
    for module in ("lm", "vit"):
        name = f"record/{module}.gradient.safetensors"
        expected = load_file(tmp_path / "reference" / name)["gradient"]
        got = load_file(tmp_path / "run" / name)["gradient"]
        norm = float(np.linalg.norm(expected))
        assert norm > 0
        assert float(np.linalg.norm(got - expected)) <= 1e-5 * norm
