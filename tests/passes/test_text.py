"""Pass tests as text files: `text/PASS/CASE.fg` is what goes into a pass and what comes out of it.

A file is a title, the command's options if it needs any, and a graph; behind the line `-----`
stands what `flowgraph ir --pass PASS` prints, or what it says when it refuses. Rewrite the expected
parts with `pytest --update-golden`, and read the difference.
"""

import shlex
from pathlib import Path

import pytest

from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import parse
from flowgraph.passes import PIPELINE
from tests.cli.commands import call
from tests.conftest import SEPARATOR, Golden

TEXT = Path(__file__).parent / "text"
PASSES = [step.name for step in PIPELINE]
CASES = sorted(path for name in PASSES for path in TEXT.glob(f"{name}/*.fg"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in CASES]
OPTIONS = "# options: "


def options(file: Path) -> list[str]:
    """What the file asks for, with the small machine as cluster unless it names another one."""
    lines = file.read_text().partition(SEPARATOR)[0].splitlines()
    found = [word for line in lines if line.startswith(OPTIONS) for word in shlex.split(line[11:])]
    return found if "--cluster" in found else [*found, "--cluster", "clusters/laptop.fg"]


@pytest.mark.parametrize("file", CASES, ids=NAMES)
def test_a_pass_makes_of_a_text_what_its_file_says(
    file: Path,
    golden: Golden,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(TEXT)
    name = file.parent.name
    outcome = call(capsys, "ir", f"{name}/{file.name}", "--pass", name, *options(file))
    assert outcome.status in (0, 2), outcome.err
    golden(file, outcome.out or outcome.err)


@pytest.mark.parametrize("file", CASES, ids=NAMES)
def test_what_a_pass_prints_can_be_read_again(file: Path) -> None:
    expected = file.read_text().partition(SEPARATOR)[2]
    if not expected.startswith("error: "):
        assert isinstance(parse(expected, str(file)), Graph | Plan)


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_has_two_cases(name: str) -> None:
    assert sum(path.parent.name == name for path in CASES) >= 2


def test_each_folder_is_named_after_a_pass() -> None:
    folders = {path.name for path in TEXT.iterdir() if path.is_dir()}
    assert folders == {*PASSES, "clusters"}
