"""Calls the command line as a shell would, in this process."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from flowgraph.cli.main import main

FILES = Path(__file__).parent / "files"
COUNTING = FILES / "counting.py"


@dataclass(frozen=True, slots=True)
class Outcome:
    status: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    capsys.readouterr()
    status = main(arguments)
    said = capsys.readouterr()
    return Outcome(status, said.out, said.err)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below the folder with its bytes, folders with None; not Python's caches."""
    found: dict[str, bytes | None] = {}
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in folders:
            found[os.path.relpath(Path(where, name), folder)] = None
        for name in files:
            path = Path(where, name)
            found[os.path.relpath(path, folder)] = path.read_bytes()
    return found
