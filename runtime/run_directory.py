"""The folder of one run: what is in it, and who writes what.

plan.fgplan     the plan, binary            metrics.jsonl   one line a step or evaluation
events.msgpack  every message and its time  outcome.json    how it ended, or that it goes on
options.json    what was asked for          checkpoints/    see `checkpoint.py`
logs/<worker>.log
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgpack

from flowgraph.ir.binary import decode, encode
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import EvaluationFinished, Progress, RunResult, StepFinished


class RunDirectory:
    """An open run directory, locked against other runs; `create` and `reopen` make one."""

    def __init__(self, path: Path, plan: Plan, options: RunOptions) -> None:
        self.path = path
        self.plan = plan
        self.options = options
        self.plan_file = path / "plan.fgplan"
        self.checkpoints = path / "checkpoints"
        self._events = (path / "events.msgpack").open("ab")
        try:
            fcntl.flock(self._events, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel frees it at death
        except BlockingIOError as error:
            self._events.close()
            raise ConfigurationError(
                f"{path} is in use: its run goes on", hint="wait until it ends, or end it first"
            ) from error
        self._metrics = (path / "metrics.jsonl").open("a")

    @classmethod
    def create(cls, options: RunOptions, plan: Plan) -> RunDirectory:
        """A new one. Raises ConfigurationError when the folder exists, or cannot be made."""
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
        (path / "logs").mkdir()
        (path / "plan.fgplan").write_bytes(encode(plan))
        (path / "options.json").write_text(json.dumps(asdict(options), indent=1) + "\n")
        directory = cls(path, plan, options)
        directory.outcome("running")
        return directory

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory:
        """One that exists. Raises ConfigurationError when it is none, or when its run goes on."""
        path = path.absolute()
        plan = read_plan(path)
        try:
            asked = json.loads((path / "options.json").read_text())
            options = replace(RunOptions(**asked), run_dir=str(path))
        except (OSError, ValueError, TypeError) as error:
            raise _no_run(path, error) from error
        return cls(path, plan, options)

    def log(self, worker: str) -> str:
        return str(self.path / "logs" / f"{worker}.log")

    def event(self, now: float, sent: bool, worker: str, data: bytes) -> None:
        """One message as it went over the wire; `now` in seconds since the attempt's start."""
        self._events.write(msgpack.packb((now, sent, worker, data)))

    def progress(self, progress: Progress) -> None:
        """Steps and evaluations, a line of JSON each, written through at once."""
        if isinstance(progress, StepFinished | EvaluationFinished):
            kind = "step" if isinstance(progress, StepFinished) else "evaluation"
            self._metrics.write(json.dumps({"kind": kind, **asdict(progress)}) + "\n")
            self._metrics.flush()

    def rewind(self, checkpoint: Path | None) -> None:
        """Forget metrics of what will be done again: all after the checkpoint."""
        done = int(checkpoint.name.removeprefix("step-")) if checkpoint else 0
        file = self.path / "metrics.jsonl"
        whole = file.read_text().rpartition("\n")[0]  # the last line may be torn, by a full disk
        kept = [line for line in whole.splitlines() if json.loads(line)["step"] < done]
        self._metrics.close()
        file.write_text("".join(line + "\n" for line in kept))
        self._metrics = file.open("a")

    def outcome(self, state: str, **details: Any) -> None:
        """`running`, `finished`, `failed` or `interrupted`; replaces what was there."""
        part = self.path / "outcome.json.part"
        part.write_text(json.dumps({"state": state, **details}, indent=1) + "\n")
        part.rename(self.path / "outcome.json")

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
        self._events.close()
        self._metrics.close()


def read_plan(path: Path) -> Plan:
    """The plan of a run directory. Raises ConfigurationError when it is none."""
    try:
        return decode((path / "plan.fgplan").read_bytes())
    except OSError as error:
        raise _no_run(path, error) from error


def _no_run(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is no run directory: {error}", hint="the folder that `flowgraph run` made"
    )
