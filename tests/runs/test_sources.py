"""A source that can only be read forward, and whose position can be stored."""

from pathlib import Path

import pytest

from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, plan_of, run

ENDLESS = GRAPHS / "endless.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd_only", "workers"),
    [
        pytest.param(False, 1, marks=pytest.mark.soak),
        pytest.param(True, 1, marks=pytest.mark.soak),
        (False, 2),
        (True, 2),
    ],
)
def test_a_source_that_is_read_forward_trains_like_the_reference_bit_for_bit(
    odd_only: bool, workers: int, tmp_path: Path
) -> None:
    plan = plan_of(ENDLESS, {"odd_only": str(odd_only).lower()}, {"host.replicas": workers})
    result = run(plan, tmp_path / "run", exact=True)
    expected = reference(plan, tmp_path / "reference", steps=3, exact=True)
    assert dict(result.weights_digest) == expected["trained"]
    assert expected["trained"] != expected["initial"]
    trained = next(v for name, v in result.samples.items() if name.endswith("/train-lm"))
    assert trained["consumed"] == 24


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_end", "steps", "consumed"), [("drop", 2, 16), ("short", 3, 20), ("loop", 4, 32)]
)
def test_its_end_is_found_and_treated_as_declared(
    at_end: str, steps: int, consumed: int, tmp_path: Path
) -> None:
    plan = plan_of(ENDLESS, {"at_end": at_end, "length": "20", "steps": "4"})
    result = run(plan, tmp_path / "run")
    assert result.steps == steps
    assert result.samples["lines/train-lm"]["consumed"] == consumed
