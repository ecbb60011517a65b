"""Each bad input: its whole message, its exit status, and that nothing was made or changed.

A golden file is a title, the command after `$`, and the files that it finds, each after `===` and
its name; after `-----` come the exit status and standard error.
"""

import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.ir.binary import encode
from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from tests.cli.commands import COUNTING, call, contents
from tests.conftest import SEPARATOR, Golden
from tests.runs.running import TWO_CORES

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(GOLDEN.glob("*.txt"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the graph that compiles in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copy(COUNTING, tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_a_bad_input_is_told_with_its_place_and_changes_nothing(
    file: Path, golden: Golden, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, files = case(file)
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name, prepare in PREPARED.items():
        if name in command:
            prepare(folder)
    before = contents(folder)
    outcome = call(capsys, *shlex.split(command)[1:])
    assert outcome.status == 2
    assert outcome.out == ""
    assert contents(folder) == before
    golden(file, f"exit {outcome.status}\n{outcome.err.replace(f'{folder}/', '')}")


def case(file: Path) -> tuple[str, dict[str, str]]:
    """The command, and the files by name."""
    head, *sections = file.read_text().partition(SEPARATOR)[0].split("\n=== ")
    command = head.splitlines()[1].removeprefix("$ ")
    parts = [section.partition("\n") for section in sections]
    return command, {name: f"{text.rstrip()}\n" for name, _, text in parts}


def good_plan(folder: Path) -> Plan:
    return compile_graph(fg.load_graph(str(folder / "counting.py")), TWO_CORES)


def cyclic(folder: Path) -> None:
    """The source's only reader feeds itself."""
    plan = good_plan(folder)
    stages = tuple(
        replace(stage, inputs=stage.outputs) if stage.op == "map" else stage
        for stage in plan.graph.stages
    )
    plan = replace(plan, graph=replace(plan.graph, stages=stages))
    (folder / "cyclic.fgplan").write_bytes(encode(plan))


def damaged(folder: Path) -> None:
    data = bytearray(encode(good_plan(folder)))
    data[len(data) // 2] ^= 1
    (folder / "damaged.fgplan").write_bytes(data)


def cut(folder: Path) -> None:
    (folder / "cut.fgplan").write_bytes(encode(good_plan(folder))[:-100])


def future(folder: Path) -> None:
    data = bytearray(encode(good_plan(folder)))
    data[8:10] = (999).to_bytes(2, "little")
    (folder / "future.fgplan").write_bytes(data)


def good(folder: Path) -> None:
    (folder / "good.fgplan").write_bytes(encode(good_plan(folder)))


def changed(folder: Path) -> None:
    (folder / "changed.fgplan").write_bytes(encode(good_plan(folder)))
    file = folder / "counting.py"
    file.write_text(file.read_text() + "\n# a second thought\n")


def gone(folder: Path) -> None:
    (folder / "gone.fgplan").write_bytes(encode(good_plan(folder)))
    (folder / "counting.py").unlink()


def old_run(folder: Path) -> None:
    (folder / "old-run").mkdir()
    (folder / "old-run" / "plan.fgplan").write_bytes(encode(good_plan(folder)))


PREPARED: dict[str, Callable[[Path], None]] = {
    "cyclic.fgplan": cyclic,
    "damaged.fgplan": damaged,
    "cut.fgplan": cut,
    "future.fgplan": future,
    "good.fgplan": good,
    "changed.fgplan": changed,
    "gone.fgplan": gone,
    "old-run": old_run,
}
"""Files that no text can stand for, made when the command names them."""
