"""`flowgraph compile | run | inspect | ...`: the commands, and how their errors are told.

Nothing heavy is imported here, nor at the top of a command's module: `flowgraph --help` answers
before Python could have imported torch.
"""

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from flowgraph.cli.errors import tell
from flowgraph.cli.session import Session, verbose_option

COMMANDS = {
    "compile": "flowgraph.cli.commands.compile",
    "run": "flowgraph.cli.commands.run",
    "resume": "flowgraph.cli.commands.resume",
    "status": "flowgraph.cli.commands.status",
    "inspect": "flowgraph.cli.commands.inspect",
    "diff": "flowgraph.cli.commands.diff",
    "simulate": "flowgraph.cli.commands.simulate",
    "profile": "flowgraph.cli.commands.profile",
    "ir": "flowgraph.cli.commands.ir",
    "doctor": "flowgraph.cli.commands.doctor",
}
"""Each command's module, whose `command` is imported when it is first asked for."""

INTERRUPTED = 1


class Commands(click.Group):
    """The commands in the order in which a newcomer meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name]).command
        return found


def _show_version(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # 20 ms

        click.echo(f"flowgraph {version('flowgraph-train')}")
        ctx.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@verbose_option
def flowgraph() -> None:
    """Train teams of LLM agents and vision-language models, written as dataflow graphs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status: 0, 1 a failed run, 2 the user's fault, 70 our bug."""
    session = Session()
    try:
        status = flowgraph.main(
            arguments, prog_name="flowgraph", standalone_mode=False, obj=session
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        return tell(error, verbose=session.verbose)
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
