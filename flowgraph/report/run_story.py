"""What a run directory tells about its run: how it ended, and its last figures."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.report.headline import duration, main_figures, number
from flowgraph.report.history import History, read_history
from flowgraph.report.troubles import told_troubles
from flowgraph.runtime.journal_reader import FILE as JOURNAL
from flowgraph.runtime.journal_reader import Story, read_story


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStory:
    """state: `finished`, `failed`, `interrupted`, or `running` (or killed before it could tell).

    error: why it failed, or "". result: the object of `--json`, or empty. journal: restarts,
    samples put aside, and what was left out. spill_bytes: that each worker may keep on disk.
    """

    path: Path
    state: str
    error: str
    result: dict[str, Any]
    history: History
    journal: Story
    spill_bytes: int = 0

    def plain(self, plan: Plan) -> dict[str, Any]:
        """The story as the object that `inspect --json` prints."""
        from flowgraph.ir.binary import plan_hash

        last = self.history.steps[-1] if self.history.steps else None
        return {
            "run_dir": str(self.path),
            "state": self.state,
            "error": self.error,
            "plan_hash": plan_hash(plan),
            "graph": plan.graph.name,
            "steps": len(self.history.steps),
            "last_step": last.metrics if last else {},
            "eval": {e.name: e.figures for e in self.history.evaluations},
            "restarts": [{"what": what, "cause": cause} for what, cause in self.journal.restarts],
            "quarantined": [asdict(one) for one in self.journal.quarantined],
            "drops": dict(self.journal.drops),
            "result": self.result,
        }

    def told(self) -> str:
        """The story in a few lines."""
        steps = self.history.steps
        state = self.state if self.state != "running" else "running, or killed without a word"
        count = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
        lines = [f"{self.path}: {state}, {count}"]
        if "wall_s" in self.result:
            lines[0] += f" in {duration(self.result['wall_s'])}"
        if self.error:
            lines += [f"  {line}" for line in self.error.splitlines()]
        if steps:
            lines.append(f"last step ({steps[-1].step + 1}):")
            for scope, named in steps[-1].metrics.items():
                lines.append(f"  {scope}: {_figures(named)}")
        last = {evaluation.name: evaluation for evaluation in self.history.evaluations}
        for evaluation in last.values():
            lines.append(
                f"evaluation {evaluation.name} after step {evaluation.step}: "
                f"{_figures(main_figures(evaluation.figures))}"
            )
        lines += told_troubles(self.journal)
        report = self.path / "report.html"
        if report.is_file():
            lines.append(f"report: {report}")
        return "\n".join(lines) + "\n"


def read_run(folder: Path) -> RunStory:
    """Raises ConfigurationError for a folder that is no run directory or is damaged."""
    outcome = _json(folder / "outcome.json")
    return RunStory(
        path=folder,
        state=str(outcome.get("state", "unknown")),
        error=str(outcome.get("error", "")),
        result=_json(folder / "result.json"),
        spill_bytes=int(_json(folder / "options.json").get("spill_bytes", 0)),
        history=read_history(folder / "metrics.jsonl"),
        # A run that was killed in its first moments has no journal yet.
        journal=read_story(folder) if (folder / JOURNAL).is_file() else Story(),
    )


def _json(file: Path) -> dict[str, Any]:
    """The object in the file; empty when the run did not come so far."""
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise ConfigurationError(f"{file} is damaged: {error}") from error
    return found if isinstance(found, dict) else {}


def _figures(named: Any) -> str:
    return "  ".join(f"{name} {number(value)}" for name, value in named.items())
