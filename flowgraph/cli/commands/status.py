"""`flowgraph status`: whether a run is alive, how far it is, and who waits for what."""

import json
import time
from pathlib import Path

import click

from flowgraph.cli.session import verbose_option


@click.command("status")
@click.argument("run_dir", metavar="RUN_DIR")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON; times since 1970.")
@verbose_option
def command(run_dir: str, as_json: bool) -> None:
    """Show what each worker and stream of a run waits for, since when, and from whom.

    Only reads: of a run that goes on, that ended, or that was killed.
    """
    from flowgraph.cli.standing import read_standing, told

    standing = read_standing(Path(run_dir))
    click.echo(json.dumps(standing) if as_json else told(standing, time.time()))
