"""The folder of one run: what is in it, and who writes what.

plan.fgplan     the plan, binary            metrics.jsonl   one line a step or evaluation
journal.db      see `journal.py`            outcome.json    how it ended, or that it goes on
options.json    what was asked for          checkpoints/    see `checkpoint.py`
run.lock        held while the run goes on  logs/<worker>.log
plan-<n>.fgplan an earlier plan, before a resume with another one

What cannot be written (a full disk) is a `CannotWrite` that names the file; what was there before
stays whole, so that the run can be resumed.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from flowgraph.ir.binary import decode, encode
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.failures import CannotWrite
from flowgraph.runtime.journal import Journal
from flowgraph.runtime.journal_reader import FILE as JOURNAL
from flowgraph.runtime.journal_reader import PLAN
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import EvaluationFinished, Progress, RunResult, StepFinished
from flowgraph.runtime.run_lock import RunLock

LOCK = "run.lock"

RESERVE = 1 << 15
"""Bytes of a file that is removed when the run ends early, so that even on a full disk there is
room to say why."""


class RunDirectory:
    """An open run directory, locked against other runs; `create` and `reopen` make one."""

    def __init__(self, path: Path, plan: Plan, options: RunOptions) -> None:
        self.path = path
        self.plan = plan
        self.options = options
        self.plan_file = path / PLAN
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.jsonl"
        self._lock = RunLock(path / LOCK)
        if not self._lock.take():
            raise ConfigurationError(
                f"{path} is in use: its run goes on", hint="wait until it ends, or end it first"
            )
        self._reserve = path / ".reserve"
        try:
            self.journal = Journal(path / JOURNAL)
            _replace(self._reserve, "\0" * RESERVE)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def create(cls, options: RunOptions, plan: Plan) -> RunDirectory:
        """A new one. Raises ConfigurationError when the folder exists, or cannot be made.

        The plan comes last: a folder that has one can be resumed, whatever killed its run.
        """
        path = Path(options.run_dir).absolute()
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            raise ConfigurationError(
                f"run directory {options.run_dir} exists already",
                hint="another --run-dir, or remove that one; flowgraph resume goes on with it",
            ) from error
        except OSError as error:
            raise ConfigurationError(f"cannot make {path}: {error.strerror}") from error
        try:
            (path / "logs").mkdir()
            _replace(path / "options.json", json.dumps(asdict(options), indent=1) + "\n")
            _replace(path / PLAN, encode(plan))
            directory = cls(path, plan, options)
            try:
                directory.outcome("running")
            except CannotWrite:
                directory.close()
                raise
        except (CannotWrite, OSError) as error:
            shutil.rmtree(path, ignore_errors=True)  # nothing of a run is in it yet
            raise ConfigurationError(
                f"cannot make {path}: {getattr(error, 'what', error)}", hint="make room on the disk"
            ) from error
        return directory

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory:
        """One that exists. Raises ConfigurationError when it is none, or when its run goes on."""
        path = path.absolute()
        return cls(path, read_plan(path), read_options(path))

    def replace_plan(self, plan: Plan) -> None:
        """Go on with another plan; the one before is kept as `plan-<n>.fgplan`."""
        kept = len(list(self.path.glob("plan-*.fgplan")))
        part = self.plan_file.with_name("plan.fgplan.part")
        try:
            part.write_bytes(encode(plan))
            os.link(self.plan_file, self.path / f"plan-{kept + 1}.fgplan")
            part.rename(self.plan_file)
        except OSError as error:
            raise CannotWrite(self.plan_file, error) from error
        self.plan = plan

    def log(self, worker: str) -> str:
        return str(self.path / "logs" / f"{worker}.log")

    def progress(self, progress: Progress) -> None:
        """Steps and evaluations, a line of JSON each, written through at once."""
        if isinstance(progress, StepFinished | EvaluationFinished):
            kind = "step" if isinstance(progress, StepFinished) else "evaluation"
            _append(self.metrics, json.dumps({"kind": kind, **asdict(progress)}) + "\n")

    def rewind(self, checkpoint: Path | None) -> int:
        """Forget metrics of what will be done again, all after the checkpoint; its steps."""
        done = int(checkpoint.name.removeprefix("step-")) if checkpoint else 0
        if self.metrics.is_file():
            whole = self.metrics.read_text().rpartition("\n")[0]  # the last line may be torn
            kept = [line for line in whole.splitlines() if json.loads(line)["step"] < done]
            _replace(self.metrics, "".join(line + "\n" for line in kept))
        return done

    def outcome(self, state: str, **details: Any) -> None:
        """`running`, `finished`, `failed` or `interrupted`; replaces what was there."""
        text = json.dumps({"state": state, **details}, indent=1) + "\n"
        _replace(self.path / "outcome.json", text)

    def ended_early(self, error: BaseException, state: str, **details: Any) -> None:
        """The run ended by `error`, which gets a note when not even that can be written."""
        self._reserve.unlink(missing_ok=True)
        try:
            self.outcome(state, error=str(error), **details)
        except CannotWrite as unwritable:
            error.add_note(unwritable.what)

    def finished(self, result: RunResult, **details: Any) -> None:
        """The run has ended well, with this result."""
        self.outcome("finished", result=asdict(result), **details)

    def result(self) -> RunResult | None:
        """Of a finished run; None when it did not finish."""
        try:
            outcome = json.loads((self.path / "outcome.json").read_text())
        except (OSError, ValueError):
            return None
        if outcome.get("state") != "finished" or "result" not in outcome:
            return None
        return RunResult(**outcome["result"])

    def close(self) -> None:
        try:
            self._reserve.unlink(missing_ok=True)
            self.journal.close()
        finally:
            self._lock.release()


def read_plan(path: Path) -> Plan:
    """The plan of a run directory. Raises ConfigurationError when it is none."""
    try:
        return decode((path / PLAN).read_bytes())
    except OSError as error:
        raise _no_run(path, error) from error


def read_options(path: Path) -> RunOptions:
    """What a run was asked for. Raises ConfigurationError for what is no run directory."""
    try:
        asked = json.loads((path / "options.json").read_text())
        return replace(RunOptions(**asked), run_dir=str(path.absolute()))
    except (OSError, ValueError, TypeError) as error:
        raise _no_run(path, error) from error


def _append(file: Path, text: str) -> None:
    """Unbuffered: what failed to be written must not come again when the file is closed."""
    left = memoryview(text.encode())
    try:
        with file.open("ab", buffering=0) as opened:
            while left:
                left = left[os.write(opened.fileno(), left) :]
    except OSError as error:
        raise CannotWrite(file, error) from error


def _replace(file: Path, content: str | bytes) -> None:
    """The whole new content, or the old one."""
    part = file.with_name(file.name + ".part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.rename(file)
    except OSError as error:
        raise CannotWrite(file, error) from error


def _no_run(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is no run directory: {error}", hint="the folder that `flowgraph run` made"
    )
