"""The command line as its user has it: run to its end, or started and watched."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.runs.running import ROOT

COMMAND = [sys.executable, "-m", "flowgraph.cli.main"]


def flowgraph(*arguments: str) -> dict[str, Any]:
    """The command's JSON. Raises CalledProcessError when it fails."""
    command = [*COMMAND, *arguments, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def start(*arguments: str) -> "subprocess.Popen[str]":
    """The command in a process group of its own, its lines to be read."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the run ended without {text!r}")


def members(group: int) -> list[int]:
    """Live processes of the group; one that is dead and waits for its parent is none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def steps_of(folder: Path) -> Sequence[int]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [m["step"] for m in map(json.loads, lines) if m["kind"] == "step"]
