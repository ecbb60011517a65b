"""What a step consists of, in real runs: filters, ends of sources, several updates a step."""

from pathlib import Path

import pytest

from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, plan_of, run

LETTERS = GRAPHS / "letters.py"


@pytest.mark.slow
def test_with_a_filter_each_step_is_filled_up_and_what_was_left_out_is_counted(
    tmp_path: Path,
) -> None:
    plan = plan_of(LETTERS, {"odd_only": "true"}, {"host.replicas": 2})
    result = run(plan, tmp_path / "run", exact=True)
    seen = result.samples["check/odd"]
    assert seen["dropped"] == seen["admitted"] - seen["consumed"] > 0
    trained = next(v for name, v in result.samples.items() if name.endswith("/train-lm"))
    assert trained == {"admitted": 24, "consumed": 24, "dropped": 0, "in_flight": 0}
    expected = reference(plan, tmp_path / "reference", steps=3, exact=True)
    assert dict(result.weights_digest) == expected["trained"]


@pytest.mark.slow
def test_several_updates_a_step_are_the_references_bit_for_bit(tmp_path: Path) -> None:
    plan = plan_of(LETTERS, {"updates": "2"}, {"lm.ranks": 2})
    result = run(plan, tmp_path / "run", exact=True)
    assert result.updates == {"lm": 6}
    expected = reference(plan, tmp_path / "reference", steps=3, exact=True)
    assert dict(result.weights_digest) == expected["trained"]


@pytest.mark.slow
@pytest.mark.parametrize(("at_end", "steps"), [("drop", 2), ("short", 3)])
def test_the_last_samples_of_a_source_follow_the_declared_policy(
    at_end: str, steps: int, tmp_path: Path
) -> None:
    plan = plan_of(LETTERS, {"at_end": at_end, "length": "20", "steps": "9"})
    result = run(plan, tmp_path / "run")
    assert result.steps == steps
    expected = 16 if at_end == "drop" else 20
    assert result.samples["check/train-lm"]["consumed"] == expected
