"""Law 1: whatever the plan, the weights are the reference executor's, bit for bit in exact mode."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from flowgraph.ir.plan import Plan
from flowgraph.runtime.item import Item
from flowgraph.runtime.trainer.interface import UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from flowgraph.runtime.worker.recording import read_rows
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


@pytest.mark.slow
def test_by_default_the_first_gradient_of_each_agent_is_the_references_on_the_recorded_rows(
    tmp_path: Path,
) -> None:
    plan = plan_of(AGENTS, SMALL[AGENTS], PINNED[AGENTS])
    run(plan, tmp_path / "run", steps=1, record=True)
    for module in ("solver", "verifier"):
        saved = load_file(tmp_path / "run" / "record" / f"{module}.gradient.safetensors")
        expected = replayed_gradient(plan, tmp_path / "run", module, float(saved["divisor"][0]))
        norm = float(np.linalg.norm(expected))
        assert norm > 0
        assert float(np.linalg.norm(saved["gradient"] - expected)) <= 1e-5 * norm


def replayed_gradient(
    plan: Plan, folder: Path, module: str, divisor: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The recorded rows' gradient, computed by one rank, a unit at a time in order."""
    rank = Rank(plan, module, steps=1, exact=False, seed=plan.graph.seed)
    task = f"train-{module}"
    units = read_rows(str(folder), module)
    assert len(units) == plan.schedule.batch
    for unit, inputs in sorted(units.items()):
        samples = tuple(dict.fromkeys(inputs[plan.task(task).inputs[0]]["sample"].values.tolist()))
        item = Item(
            id=unit,
            task=task,
            units=(unit,),
            samples=(samples,),
            inputs={stream: (batch,) for stream, batch in inputs.items()},
        )
        rank.train(task, item)
    rank.update(UpdateOrder(step=0, part=0, divisor=divisor))
    return np.asarray(rank.flat_gradient().numpy())
