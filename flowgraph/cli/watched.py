"""A run from its first line on a terminal to its report: what `run` and `resume` share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli.closed_output import surviving_closed_output
from flowgraph.cli.session import wall_seconds
from flowgraph.ir.errors import RunFailed
from flowgraph.ir.plan import Plan

if TYPE_CHECKING:
    from flowgraph.cli.progress.lines import Lines
    from flowgraph.cli.progress.live import LiveDisplay
    from flowgraph.cli.progress.tracker import Tracker
    from flowgraph.runtime.progress import Observer, Progress, RunResult

Execute = Callable[["Observer"], "RunResult"]


def watch(
    plan: Plan,
    folder: Path,
    execute: Execute,
    *,
    as_json: bool,
    plain: bool = False,
    only: int | None = None,
) -> None:
    """Execute the run while showing it; then its summary, its report, and its JSON if asked.

    plain: lines even on a terminal, so that the user's breakpoint() is readable. only: the one
    sample that was replayed. Raises RunFailed, after drawing what there is to draw.
    """
    from rich.console import Console

    from flowgraph.cli.progress.tracker import Tracker
    from flowgraph.cli.result_object import result_object
    from flowgraph.cli.summary import print_summary
    from flowgraph.ir.binary import plan_hash
    from flowgraph.report import write_report

    tracker = Tracker()
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    with surviving_closed_output():
        click.echo(f"run directory: {folder}", err=as_json)
    try:
        with _display(plan, tracker, console, as_json=as_json, plain=plain) as display:
            result = execute(_unbroken(display.observe))
        found = result_object(
            result, plan_hash=plan_hash(plan), wall_s=wall_seconds(), run_dir=str(folder.absolute())
        )
        (folder / "result.json").write_text(json.dumps(found, indent=1) + "\n")
    except RunFailed as error:
        if tracker.done:
            _report_failed(folder, error)
        raise
    report = write_report(folder) if tracker.done else None
    with surviving_closed_output():
        if only is not None:
            console.print(f"sample {only} went through all stages without a failure")
        else:
            name = plan.graph.name
            print_summary(console, tracker, result, name=name, wall_s=found["wall_s"])
        if report:
            console.print(f"report: {report}")
        if as_json:
            click.echo(json.dumps({**found, "wall_s": round(wall_seconds(), 3)}))


def _unbroken(observe: "Observer") -> "Observer":
    """What is shown of a run must not end it."""

    def shown(progress: "Progress") -> None:
        with surviving_closed_output():
            observe(progress)

    return shown


def _report_failed(folder: Path, error: RunFailed) -> None:
    """The curves so far; whatever goes wrong with them must not hide why the run failed."""
    from flowgraph.report import write_report

    try:
        error.add_note(f"report: {write_report(folder)}")
    except Exception as unreadable:
        error.add_note(f"no report could be drawn: {type(unreadable).__name__}: {unreadable}")


def _display(
    plan: Plan, tracker: "Tracker", console: Any, *, as_json: bool, plain: bool
) -> "Lines | LiveDisplay":
    """Live on a terminal, lines elsewhere."""
    if console.is_terminal and not plain:
        from flowgraph.cli.progress.live import LiveDisplay

        workers = sum(group.replicas for group in plan.groups)
        return LiveDisplay(tracker, console, name=plan.graph.name, workers=workers)
    from flowgraph.cli.progress.lines import Lines

    return Lines(tracker, to_stderr=as_json)
