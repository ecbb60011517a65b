"""What a step consists of, in real runs: filters, ends of sources, several updates a step."""

import re
import subprocess
from pathlib import Path

import pytest

from flowgraph.ir.errors import RunFailed
from tests.runs.command import COMMAND
from tests.runs.reference_process import reference
from tests.runs.running import GRAPHS, ROOT, plan_of, run

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
    assert dict(result.samples) == expected["samples"]


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


@pytest.mark.slow
def test_filters_that_let_nothing_pass_end_the_run_instead_of_reading_for_ever(
    tmp_path: Path,
) -> None:
    what = r"the filters let none of 1,\d+ samples in a row pass; the source has 1\b"
    settings = {"odd_only": "true", "length": "1"}  # a line that starts with 0
    with pytest.raises(RunFailed, match=what):
        run(plan_of(LETTERS, settings), tmp_path / "run")
    asked = [f"--set={name}={value}" for name, value in settings.items()]
    command = [*COMMAND, "run", str(LETTERS), *asked, "--reference"]
    folder = ["--run-dir", str(tmp_path / "reference")]
    done = subprocess.run(
        [*command, *folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert re.search(what, done.stderr), done.stderr
