"""What to do after a failed run: which log to read, and how to replay the sample that failed."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from flowgraph.cli.options import Request
from flowgraph.ir.errors import RunFailed


def explain(
    error: RunFailed, folder: Path, request: Request, *, exact: bool, reference: bool = False
) -> None:
    """Where to look, and the command that goes on or replays the sample, as notes on the error."""
    worker = re.search(r"\(in worker (\S+)\)$", error.what)
    log = folder / "logs" / f"{worker[1]}.log" if worker else folder / "logs"
    if log.is_file() or (log.is_dir() and any(log.iterdir())):
        error.add_note(f"log: {log}")
    if folder.is_dir():
        error.add_note(f"run directory: {folder}")
    if not reference and _interrupted(error):
        error.add_note(f"go on: {shlex.join(['flowgraph', 'resume', str(folder)])}")
    sample = getattr(error, "sample", None)
    if sample is None:
        return
    if evaluating(error):
        # a single replayed sample is one of training: it would be another record, or other work
        error.add_note("where: in an evaluation, which puts no sample aside")
        sample = None
    error.add_note(f"replay: {replay_command(request, sample, exact=exact)}")


def evaluating(error: RunFailed) -> bool:
    """Whether it is known that the sample which failed was an evaluation's.

    A worker tells it together with its stage; of a process that was lost nobody knows.
    """
    known = bool(getattr(error, "stage", "")) and not getattr(error, "training", True)
    return known or getattr(error, "evaluating", False)


def _interrupted(error: RunFailed) -> bool:
    from flowgraph.runtime.shell import RunInterrupted

    return isinstance(error, RunInterrupted)


def replay_command(request: Request, sample: int | None, *, exact: bool) -> str:
    """The command that runs just this sample again, in one process. sample: None: the whole run."""
    words: list[str] = ["flowgraph", "run", request.target]
    words += _each("--set", request.settings)
    words += ["--cluster", request.cluster] if request.cluster else []
    words += _each("--pin", request.pins)
    words += ["--costs", request.costs] if request.costs else []
    words += ["--exact"] if exact else []
    words += ["--reference"] if sample is None else ["--reference", "--only", str(sample)]
    return shlex.join(words)


def _each(option: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
