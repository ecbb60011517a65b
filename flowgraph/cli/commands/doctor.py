"""`flowgraph doctor`: whether this machine can run graphs, and what to do where it cannot."""

import click

from flowgraph.cli.session import verbose_option

PROBLEM = 1


@click.command("doctor")
@verbose_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Try out what runs need of this machine, and say what to do.

    Exits with 1 when a check found a problem.
    """
    from flowgraph.cli.doctor.checks import CHECKS

    problems = 0
    for check in CHECKS:
        found = check()
        word, colour = ("ok", "green") if found.ok else ("PROBLEM", "red")
        click.echo(f"{found.name:<14} {click.style(f'{word:<8}', fg=colour)} {found.text}")
        if not found.ok:
            problems += 1
            click.echo(f"{'':<14} {'do:':<8} {found.cure}")
    if problems:
        click.echo(f"{problems} of {len(CHECKS)} checks found a problem")
        ctx.exit(PROBLEM)
