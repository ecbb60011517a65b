"""`flowgraph compile`: check a graph, decide, and write the plan."""

import contextlib
import os
from pathlib import Path

import click

from flowgraph.cli.costs_file import load_costs
from flowgraph.cli.options import Request, graph_options
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import compile_request, source_of
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan


@click.command("compile")
@click.argument("graph", metavar="GRAPH.py[:build]")
@graph_options
@click.option("--costs", metavar="FILE", help="What `flowgraph profile` measured.")
@click.option("-o", "--output", metavar="PLAN", help="The plan file (default: NAME.fgplan here).")
@verbose_option
def command(
    graph: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
    output: str | None,
) -> None:
    """Check a graph, decide who runs what where, and write the plan."""
    if source_of(graph).kind != "graph":
        raise ConfigurationError(f"{graph} is no graph file", hint="GRAPH.py, or GRAPH.py:build")
    request = Request(target=graph, settings=settings, cluster=cluster, pins=pins)
    plan = compile_request(request, costs=load_costs(costs))
    file = Path(output or f"{plan.graph.name}.fgplan")
    write_plan(plan, file)
    from flowgraph.passes.explain import explain

    click.echo(explain(plan).partition("\n\n")[0])
    click.echo(f"plan: {file} (flowgraph inspect {file} explains it)")


def write_plan(plan: Plan, file: Path) -> None:
    """Replace `file` as a whole, or leave it as it was. Raises ConfigurationError if it cannot."""
    from flowgraph.ir.binary import encode

    data = encode(plan)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is there
            part.unlink(missing_ok=True)
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from error
