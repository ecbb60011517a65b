"""`--listen`: where workers connect; what names no interface of one's own choice is refused."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING, call


@pytest.mark.parametrize("where", ["udp", "tcp://*:5555", "tcp://localhost:5555"])
def test_what_is_no_address_is_refused_before_there_is_a_run_directory(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    outcome = call(capsys, "run", str(COUNTING), f"--listen={where}", f"--run-dir={folder}")
    assert outcome.status == 2
    assert f"cannot listen at '{where}'" in outcome.err
    assert not folder.exists()


def test_a_run_over_tcp_is_asked_for_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    arguments = ["--steps=1", f"--run-dir={folder}", "--listen=tcp"]
    outcome = call(capsys, "run", str(COUNTING), *arguments)
    assert outcome.status == 0, outcome.err
    assert json.loads((folder / "options.json").read_text())["listen"] == "tcp"
