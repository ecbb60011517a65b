"""`flowgraph simulate` as a shell would call it."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.commands import COUNTING, call

ROOT = Path(__file__).parents[3]


def test_the_last_line_is_one_json_object_and_the_words_are_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = call(capsys, "simulate", str(COUNTING), "--steps", "3", "--json")
    assert said.status == 0
    found = json.loads(said.out)
    assert (found["outcome"], found["steps"]) == ("finished", 3)
    assert "3 steps simulated with estimated times" in said.err


def test_faults_are_read_from_a_file_and_a_wrong_one_is_the_users_fault(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("- {kind: slow, worker: host-0, factor: 50}\n")
    slow = call(capsys, "simulate", str(COUNTING), "--steps", "3", "--json", "--faults", str(file))
    plain = call(capsys, "simulate", str(COUNTING), "--steps", "3", "--json")
    seconds = [json.loads(said.out)["seconds"] for said in (slow, plain)]
    assert seconds[0] > 5 * seconds[1]
    file.write_text("- {kind: slow, worker: hots-0}\n")
    wrong = call(capsys, "simulate", str(COUNTING), "--faults", str(file))
    assert wrong.status == 2
    assert "fault 0: the plan has no worker 'hots-0'" in wrong.err
    missing = call(capsys, "simulate", str(COUNTING), "--faults", str(tmp_path / "none.yaml"))
    assert missing.status == 2


def test_the_timeline_is_written_as_trace_and_as_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, picture = tmp_path / "t.json", tmp_path / "t.svg"
    pictures = ("--trace", str(trace), "--svg", str(picture))
    assert call(capsys, "simulate", str(COUNTING), "--steps", "2", *pictures).status == 0
    assert json.loads(trace.read_text())["traceEvents"]
    assert ET.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    nowhere = str(tmp_path / "no" / "t.svg")
    assert call(capsys, "simulate", str(COUNTING), "--svg", nowhere).status == 2


def test_a_folder_that_is_no_run_cannot_give_times(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = call(capsys, "simulate", str(COUNTING), "--from-run", str(tmp_path))
    assert said.status == 2
    assert "is no run directory" in said.err


def test_simulating_imports_neither_torch_nor_zmq() -> None:
    code = (
        "import sys; from flowgraph.cli.main import main\n"
        f"main(['simulate', {str(COUNTING)!r}, '--steps', '2'])\n"
        "print([name for name in ('torch', 'zmq', 'networkx') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "[]"
