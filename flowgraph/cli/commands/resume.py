"""`flowgraph resume`: go on with a run that ended early, exactly where it was."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowgraph.cli.session import verbose_option
from flowgraph.cli.watched import watch

if TYPE_CHECKING:
    from flowgraph.runtime.progress import Observer, RunResult


@click.command("resume")
@click.argument("run_dir", metavar="RUN_DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one last line of JSON.")
@verbose_option
def command(run_dir: str, as_json: bool) -> None:
    """Go on with a run, from its last checkpoint, to the steps first asked for."""
    from flowgraph.runtime.run_directory import read_plan

    folder = Path(run_dir)
    plan = read_plan(folder)

    def execute(observe: "Observer") -> "RunResult":
        from flowgraph.runtime.shell import resume_run

        return resume_run(run_dir, observe)

    watch(plan, folder, execute, as_json=as_json)
