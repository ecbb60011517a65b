"""`flowgraph resume`: go on with a run that ended early, exactly where it was."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowgraph.cli.before_run import remarks
from flowgraph.cli.failure import explain
from flowgraph.cli.options import Request
from flowgraph.cli.session import verbose_option
from flowgraph.cli.watched import watch
from flowgraph.ir.errors import RunFailed

if TYPE_CHECKING:
    from flowgraph.runtime.progress import Observer, RunResult


@click.command("resume")
@click.argument("run_dir", metavar="RUN_DIR")
@click.option(
    "--cluster", metavar="FILE", help="Go on with another plan: for what this YAML file describes."
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="SUBJECT.DECISION=VALUE",
    help="Go on with another plan: with this decision fixed, for instance lm.ranks=4.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one last line of JSON.")
@verbose_option
def command(run_dir: str, cluster: str | None, pins: tuple[str, ...], as_json: bool) -> None:
    """Go on with a run, from its last checkpoint, to the steps first asked for."""
    from flowgraph.runtime.run_directory import read_options, read_plan

    folder = Path(run_dir)
    plan, options = read_plan(folder), read_options(folder)
    again = None
    if cluster or pins:
        from flowgraph.cli.replan import replanned

        plan = again = replanned(plan, cluster, pins, exact=options.exact)
    for remark in remarks(plan, exact=options.exact, spill=options.spill_bytes):
        click.echo(remark, err=True)

    def execute(observe: "Observer") -> "RunResult":
        from flowgraph.runtime.supervise import resume_run

        return resume_run(run_dir, observe, again)

    try:
        watch(plan, folder, execute, as_json=as_json)
    except RunFailed as error:
        explain(error, folder, Request(target=f"{run_dir}/plan.fgplan"), exact=options.exact)
        raise
