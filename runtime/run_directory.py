"""The folder of one run: what is in it, and who writes what.

plan.fgplan     the plan, binary            metrics.jsonl   one line a step or evaluation
events.msgpack  every message and its time  outcome.json    how it ended, or that it goes on
logs/<worker>.log                           checkpoints/    weights, safetensors
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgpack

from flowgraph.ir.binary import encode
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.progress import EvaluationFinished, Progress, StepFinished


class RunDirectory:
    """Made once for a run. Raises ConfigurationError when the folder exists already."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path.absolute()
        try:
            self.path.mkdir(parents=True)
        except FileExistsError as error:
            raise ConfigurationError(
                f"run directory {path} exists already",
                hint="another --run-dir, or remove that one",
            ) from error
        except OSError as error:
            raise ConfigurationError(f"cannot make {path}: {error.strerror}") from error
        (self.path / "logs").mkdir()
        self.plan_file = self.path / "plan.fgplan"
        self.plan_file.write_bytes(encode(plan))
        self._events = (self.path / "events.msgpack").open("wb")
        self._metrics = (self.path / "metrics.jsonl").open("w")
        self.outcome("running")

    def log(self, worker: str) -> str:
        return str(self.path / "logs" / f"{worker}.log")

    def event(self, now: float, sent: bool, worker: str, data: bytes) -> None:
        """One message as it went over the wire; `now` in seconds since the run's start."""
        self._events.write(msgpack.packb((now, sent, worker, data)))

    def progress(self, progress: Progress) -> None:
        """Steps and evaluations, a line of JSON each, written through at once."""
        if isinstance(progress, StepFinished | EvaluationFinished):
            kind = "step" if isinstance(progress, StepFinished) else "evaluation"
            self._metrics.write(json.dumps({"kind": kind, **asdict(progress)}) + "\n")
            self._metrics.flush()

    def outcome(self, state: str, **details: Any) -> None:
        """`running`, `finished`, `failed` or `interrupted`; replaces what was there."""
        part = self.path / "outcome.json.part"
        part.write_text(json.dumps({"state": state, **details}, indent=1) + "\n")
        part.rename(self.path / "outcome.json")

    def close(self) -> None:
        self._events.close()
        self._metrics.close()
