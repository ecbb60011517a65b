"""One epoch in real processes, ended wherever asked, and what of it was trained in the end."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from flowgraph.ir.binary import encode
from flowgraph.ir.plan import Plan
from flowgraph.runtime.messages import Run, decode
from flowgraph.runtime.progress import RunResult
from tests.runs.command import flowgraph, steps_of
from tests.runs.running import GRAPHS, ROOT, plan_of, run

TOLD = ("steps", "samples", "updates", "metrics", "weights_digest", "initial_digest")


def trained(folder: Path) -> Counter[int]:
    """How often each sample was trained by steps that count: an attempt's until the next one's."""
    attempts = _rows(folder, "SELECT attempt, step FROM attempts ORDER BY attempt")
    until = {attempt: following for (attempt, _), (_, following) in pairwise(attempts)}
    units: dict[tuple[int, int], tuple[int, ...]] = {}
    query = "SELECT attempt, payload FROM messages WHERE name = 'Run' ORDER BY id"
    for attempt, payload in _rows(folder, query):
        message = decode(payload)
        assert isinstance(message, Run)
        counts = message.step < until.get(attempt, 1 << 40)
        if message.task.startswith("train") and message.variant == 0 and counts:
            for unit, samples in zip(message.units, message.samples, strict=True):
                units[(message.step, unit)] = samples
    return Counter(sample for samples in units.values() for sample in samples)


def dropped(folder: Path) -> set[tuple[int, str]]:
    """Samples that left the run on purpose, with the reason."""
    return set(_rows(folder, "SELECT DISTINCT sample, reason FROM drops"))


def events(folder: Path) -> int:
    """How many the orchestrator took in all."""
    ((count,),) = _rows(folder, "SELECT count(*) FROM messages WHERE direction != 'sent'")
    return int(count)


def _rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "journal.db")) as connection:
        return connection.execute(query).fetchall()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The uninterrupted run, and its plan as a file."""

    plan: Path
    folder: Path
    result: RunResult

    def check(self, folder: Path, resumed: dict[str, Any], what: str) -> None:
        """Raises AssertionError where the resumed run came to something else."""
        for name in TOLD:
            assert resumed[name] == getattr(self.result, name), f"{name}: {what}"
        assert trained(folder) == trained(self.folder), what
        assert dropped(folder) == dropped(self.folder), what
        assert steps_of(folder) == list(range(self.result.steps)), what


def whole_run(folder: Path, **settings: str) -> Whole:
    folder.mkdir()
    plan: Plan = plan_of(GRAPHS / "epoch.py", settings)
    (folder / "epoch.fgplan").write_bytes(encode(plan))
    result = run(plan, folder / "whole", exact=True, checkpoint_every=1)
    return Whole(plan=folder / "epoch.fgplan", folder=folder / "whole", result=result)


def stopped_and_resumed(whole: Whole, folder: Path, moments: Sequence[str]) -> None:
    """A run that ends at the first moment, is resumed to the next, ..., and then to its end."""
    command = ["run", str(whole.plan), "--exact", "--checkpoint-every=1", f"--run-dir={folder}"]
    for moment in moments:
        status = ended_at(moment, *command)
        expected = 1 if "INT" in moment else -signal.SIGKILL
        assert status == expected, f"{moment} of {moments}: {(folder / 'outcome.json').read_text()}"
        command = ["resume", str(folder)]
    whole.check(folder, flowgraph(*command), f"ended at {', '.join(moments)}")


def ended_at(moment: str, *arguments: str) -> int:
    """The exit status of `flowgraph ...` in a process group of its own; see `killed.py`."""
    command = [sys.executable, "-m", "tests.runs.killed", moment, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        check=False,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode
