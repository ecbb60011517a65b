"""The report of a run: `write_report(folder)` draws what the run directory holds, in one file."""

from pathlib import Path

from flowgraph.ir.binary import decode
from flowgraph.report.page import page
from flowgraph.report.run_story import read_run

__all__ = ["write_report"]


def write_report(folder: Path) -> Path:
    """Write `report.html` from the folder's plan, metrics and outcome, whatever the outcome was.

    The file needs no other and no network. Raises ConfigurationError for a damaged run directory.
    """
    plan_file = folder / "plan.fgplan"
    plan = decode(plan_file.read_bytes(), str(plan_file))
    file = folder / "report.html"
    file.write_text(page(plan, read_run(folder), began=plan_file.stat().st_mtime))
    return file
