"""`--spill`: a size is read as people write it, and reaches the run."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING, call


@pytest.mark.parametrize("size", ["3x", "-1", "lots", "20 GB/s"])
def test_what_is_no_size_is_refused_with_an_example(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = call(capsys, "run", str(COUNTING), f"--spill={size}")
    assert outcome.status == 2
    assert f"'{size}' is no size such as '80 GiB'" in outcome.err


def test_a_place_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = call(capsys, "run", str(COUNTING), "--spill", "1GB", "--spill-dir", "/nowhere")
    assert outcome.status == 2
    assert "'/nowhere' does not exist" in outcome.err


def test_the_size_and_the_place_are_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "disk").mkdir()
    place = ["--spill", "1.5 MB", "--spill-dir", str(tmp_path / "disk")]
    folder = tmp_path / "run"
    outcome = call(capsys, "run", str(COUNTING), "--steps=1", f"--run-dir={folder}", *place)
    assert outcome.status == 0, outcome.err
    options = json.loads((folder / "options.json").read_text())
    assert (options["spill_bytes"], options["spill_dir"]) == (1_500_000, place[-1])
    assert list((tmp_path / "disk").iterdir()) == []
