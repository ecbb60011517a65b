"""`flowgraph run`: a graph or a plan, to its end, watched."""

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli.before_run import remarks
from flowgraph.cli.failure import explain
from flowgraph.cli.options import Request, graph_options
from flowgraph.cli.session import verbose_option, wall_seconds
from flowgraph.cli.target import load_plan, source_of
from flowgraph.ir.errors import ConfigurationError, RunFailed
from flowgraph.ir.plan import Plan

if TYPE_CHECKING:
    from flowgraph.cli.progress.lines import Lines
    from flowgraph.cli.progress.live import LiveDisplay
    from flowgraph.cli.progress.tracker import Tracker
    from flowgraph.runtime.options import RunOptions
    from flowgraph.runtime.progress import Observer, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The run's own options, as typed."""

    steps: int | None
    run_dir: str | None
    reference: bool
    only: int | None
    exact: bool
    record: bool
    as_json: bool


@click.command("run")
@click.argument("target", metavar="GRAPH.py[:build]|PLAN")
@graph_options
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to take.")
@click.option("--run-dir", metavar="DIR", help="Folder of the run (default: runs/NAME-TIME).")
@click.option(
    "--reference",
    is_flag=True,
    help="One process, nothing overlapped; breakpoint() works in your functions.",
)
@click.option(
    "--only",
    type=click.IntRange(min=0),
    metavar="ID",
    help="With --reference: replay this one sample.",
)
@click.option("--exact", is_flag=True, help="Bit-reproducible: equal on any plan of the graph.")
@click.option(
    "--record", is_flag=True, help="Keep the first update's rows and gradients under DIR/record."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one last line of JSON.")
@verbose_option
def command(
    target: str, settings: tuple[str, ...], cluster: str | None, pins: tuple[str, ...], **rest: Any
) -> None:
    """Run a graph, or a plan that was compiled from one, to its end."""
    asked = Asked(**rest)
    if asked.only is not None and not asked.reference:
        raise click.UsageError("--only replays a sample in the reference executor: add --reference")
    request = Request(target=target, settings=settings, cluster=cluster, pins=pins)
    if source_of(target).kind == "run":
        raise ConfigurationError(
            f"{target} is a run directory", hint=f"flowgraph run {target}/plan.fgplan"
        )
    plan = load_plan(request)
    for remark in remarks(plan, exact=asked.exact):
        click.echo(remark, err=True)
    folder = run_folder(asked.run_dir, plan.graph.name)
    try:
        _run(plan, asked, folder)
    except RunFailed as error:
        explain(error, folder, request, exact=asked.exact)
        raise


def run_folder(asked: str | None, name: str) -> Path:
    """The folder asked for, or a new name under `runs/`."""
    if asked is not None:
        folder = Path(asked)
        if folder.exists():
            raise ConfigurationError(
                f"run directory {asked} exists already",
                hint="another --run-dir, or remove that one",
            )
        return folder
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1000))
    return next(p for p in (Path("runs", n) for n in names) if not p.exists())


def _run(plan: Plan, asked: Asked, folder: Path) -> None:
    from rich.console import Console

    from flowgraph.cli.progress.tracker import Tracker
    from flowgraph.cli.result_object import result_object
    from flowgraph.cli.summary import print_summary
    from flowgraph.ir.binary import plan_hash
    from flowgraph.report import write_report

    tracker = Tracker()
    console = Console(stderr=asked.as_json, highlight=False, soft_wrap=True)
    click.echo(f"run directory: {folder}", err=asked.as_json)
    try:
        result = _execute(plan, asked, folder, tracker, console)
        found = result_object(
            result, plan_hash=plan_hash(plan), wall_s=wall_seconds(), run_dir=str(folder.absolute())
        )
        (folder / "result.json").write_text(json.dumps(found, indent=1) + "\n")
    except RunFailed as error:
        if tracker.done:
            _report_failed(folder, error)
        raise
    report = write_report(folder) if tracker.done else None
    if asked.only is not None:
        console.print(f"sample {asked.only} went through all stages without a failure")
    else:
        name = plan.graph.name
        print_summary(console, tracker, result, name=name, wall_s=found["wall_s"])
    if report:
        console.print(f"report: {report}")
    if asked.as_json:
        click.echo(json.dumps({**found, "wall_s": round(wall_seconds(), 3)}))


def _report_failed(folder: Path, error: RunFailed) -> None:
    """The curves so far; whatever goes wrong with them must not hide why the run failed."""
    from flowgraph.report import write_report

    try:
        error.add_note(f"report: {write_report(folder)}")
    except Exception as unreadable:
        error.add_note(f"no report could be drawn: {type(unreadable).__name__}: {unreadable}")


def _execute(
    plan: Plan, asked: Asked, folder: Path, tracker: "Tracker", console: Any
) -> "RunResult":
    from flowgraph.runtime.options import RunOptions

    options = RunOptions(
        run_dir=str(folder.absolute()),
        steps=asked.steps,
        exact=asked.exact,
        record=asked.record,
        only=asked.only,
    )
    with _display(plan, asked, tracker, console) as display:
        if asked.reference:
            return _reference(plan, options, display.observe)
        from flowgraph.runtime.shell import run_plan

        return run_plan(plan, options, display.observe)


def _reference(plan: Plan, options: "RunOptions", observe: "Observer") -> "RunResult":
    """The reference executor, told as a run is when the user ends it."""
    from flowgraph.runtime.reference.executor import run_reference

    try:
        return run_reference(plan, options, observe)
    except KeyboardInterrupt as error:
        # It went through the user's coroutine; asyncio would report that task as unretrieved.
        logging.getLogger("asyncio").disabled = True
        raise RunFailed("interrupted: the run was ended") from error


def _display(plan: Plan, asked: Asked, tracker: "Tracker", console: Any) -> "Lines | LiveDisplay":
    """Live on a terminal; lines elsewhere, and where the user's breakpoint() must be readable."""
    if console.is_terminal and not asked.reference:
        from flowgraph.cli.progress.live import LiveDisplay

        workers = sum(group.replicas for group in plan.groups)
        return LiveDisplay(tracker, console, name=plan.graph.name, workers=workers)
    from flowgraph.cli.progress.lines import Lines

    return Lines(tracker, to_stderr=asked.as_json)
