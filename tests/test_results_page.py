"""`make learn`: the page says what the runs say, and admits what they miss."""

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks.learn import Case, Run, page


def agents_run(seed: int, *, gain: float = 0.5, trained: float = 0.8) -> Run:
    rewards = {"reward": {"first": 0.1, "last": 0.1 + gain}}
    result: Mapping[str, Any] = {
        "steps": 9,
        "wall_s": 61.7,
        "metrics": {"solver": rewards, "verifier": rewards},
    }
    team = {"trained": trained, "always-accept": 0.7, "always-reject": 0.3}
    ends = {(name, 0): {"team": 0.2} for name in team}
    ends |= {(name, 9): {"team": value} for name, value in team.items()}
    return Run(Case(graph="examples/marl_arithmetic.py", seed=seed), result, ends)


def digits_run(seed: int, *settings: str) -> Run:
    kinds = dict.fromkeys(("digit", "parity", "larger", "sum", "text"), 0.5)
    ends = {
        ("held-out", 0): {"exact_match": 0.0, **kinds},
        ("held-out", 4): {"exact_match": 0.6, **kinds},
        ("held-out", 9): {"exact_match": 0.9, **kinds},
    }
    case = Case(graph="examples/vlm_digits.py", seed=seed, settings=settings)
    return Run(case, {"steps": 9, "wall_s": 5.0}, ends)


DIGITS = [digits_run(0), digits_run(0, "encoder=frozen")]


def test_a_row_a_run_has_first_and_last_figures_and_the_mean_is_over_the_seeds() -> None:
    text = page([agents_run(0), agents_run(1, gain=0.7)], DIGITS, "make learn")
    assert "| 1 | 0.100 → 0.800 |" in text
    assert "| mean | 0.100 → 0.700 |" in text
    assert "| 62 s |" in text
    assert "| 0 | trained | 0.000 → 0.900 |" in text
    assert "| 0 | frozen as initialised | 0.000 → 0.900 |" in text


def test_commands_are_those_that_a_reader_would_type() -> None:
    text = page([agents_run(0)], DIGITS, "make learn")
    assert "`flowgraph run examples/marl_arithmetic.py --set seed=SEED`" in text
    assert "`flowgraph run examples/vlm_digits.py --set encoder=frozen --set seed=SEED`" in text


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (agents_run(0), "(at least 0.2 each)"),
        (agents_run(0, gain=0.1), "(NOT at least 0.2 each)"),
        (agents_run(0), "(it gains by its verifier)"),
        (agents_run(0, trained=0.6), "(it does NOT gain by its verifier)"),
    ],
)
def test_a_miss_is_said_aloud(run: Run, said: str) -> None:
    assert said in page([run], DIGITS, "make learn")
