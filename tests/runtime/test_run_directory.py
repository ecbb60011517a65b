"""A run directory that could not be made, or whose run was killed while it was made."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flowgraph.cli.standing import read_standing, told
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.runtime import run_directory
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.run_directory import RunDirectory, read_plan
from tests.runs.running import GRAPHS, ROOT, plan_of

CREATE = """
import resource, sys
from flowgraph.ir.binary import decode
from flowgraph.ir.errors import ConfigurationError
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.run_directory import RunDirectory
plan = decode(open(sys.argv[1], "rb").read())
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    RunDirectory.create(RunOptions(run_dir=sys.argv[2]), plan)
except ConfigurationError as error:
    print(error.what)
"""


@pytest.mark.parametrize("most", [100, 1000, 30_000])
def test_a_folder_that_cannot_be_made_whole_is_named_and_not_left(
    most: int, tmp_path: Path
) -> None:
    made = RunDirectory.create(RunOptions(run_dir=str(tmp_path / "made")), letters())
    made.close()
    folder = tmp_path / "run"
    command = [sys.executable, "-c", CREATE, str(made.plan_file), str(folder), str(most)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot make {folder}: cannot write {folder}/"), done
    assert not folder.exists()


class Killed(BaseException):
    """Stands for kill -9: nothing more is done after it."""


@pytest.mark.parametrize("after", range(4))
def test_whenever_its_making_is_broken_off_a_folder_is_none_or_can_be_resumed(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    written: list[Path] = []
    replace = run_directory._replace

    def broken(file: Path, content: str | bytes) -> None:
        if len(written) == after:
            file.with_name(file.name + ".part").write_bytes(b"to")
            raise Killed
        written.append(file)
        replace(file, content)

    with monkeypatch.context() as patched:
        patched.setattr(run_directory, "_replace", broken)
        with pytest.raises(Killed):
            RunDirectory.create(RunOptions(run_dir=str(folder)), letters())
    if after < 2:
        with pytest.raises(ConfigurationError, match="is no run directory"):
            read_plan(folder)
        return
    assert said(folder).startswith(f"{folder}: ")


@pytest.mark.parametrize("torn", [Path.unlink, lambda file: file.write_bytes(b"")])
def test_a_run_killed_before_its_journal_was_made_is_dead_and_can_be_resumed(
    torn: Callable[[Path], object], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    RunDirectory.create(RunOptions(run_dir=str(folder)), letters()).close()
    (folder / "outcome.json").unlink()
    torn(folder / "journal.db")
    assert "dead: it was killed before it could say why" in said(folder)
    assert f"go on from step 0: flowgraph resume {folder}" in said(folder)
    RunDirectory.reopen(folder).close()


def said(folder: Path) -> str:
    return told(read_standing(folder), 0.0)


def letters() -> Plan:
    return plan_of(GRAPHS / "letters.py")
