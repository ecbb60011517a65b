"""What to do after a failed run: which log to read, and how to replay the sample that failed."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from flowgraph.cli.options import Request
from flowgraph.ir.errors import RunFailed


def explain(error: RunFailed, folder: Path, request: Request, *, exact: bool) -> None:
    """Where to look, and the command that replays the sample, as notes on the error."""
    worker = re.search(r"\(in worker (\S+)\)$", error.what)
    log = folder / "logs" / f"{worker[1]}.log" if worker else folder / "logs"
    if log.is_file() or (log.is_dir() and any(log.iterdir())):
        error.add_note(f"log: {log}")
    if folder.is_dir():
        error.add_note(f"run directory: {folder}")
    sample = getattr(error, "sample", None)
    if sample is not None:
        error.add_note(f"replay: {replay_command(request, sample, exact=exact)}")


def replay_command(request: Request, sample: int, *, exact: bool) -> str:
    """The command that runs just this sample again, in one process."""
    words: list[str] = ["flowgraph", "run", request.target]
    words += _each("--set", request.settings)
    words += ["--cluster", request.cluster] if request.cluster else []
    words += _each("--pin", request.pins)
    words += ["--costs", request.costs] if request.costs else []
    words += ["--exact"] if exact else []
    return shlex.join([*words, "--reference", "--only", str(sample)])


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
