"""`flowgraph compile`: check a graph, decide, and write the plan, or show the way there."""

import contextlib
import os
from pathlib import Path

import click

from flowgraph.cli.costs_file import load_costs
from flowgraph.cli.error_notes import error_notes
from flowgraph.cli.options import Request, graph_options, read_pin_texts
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import cluster_for, compile_request, load_declared, source_of
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan


@click.command("compile")
@click.argument("graph", metavar="GRAPH.py[:build]")
@graph_options
@click.option("--costs", metavar="FILE", help="What `flowgraph profile` measured.")
@click.option(
    "--print-after",
    multiple=True,
    metavar="PASS|all",
    help="Print the text form after this pass; may be given several times.",
)
@click.option("--stop-after", metavar="PASS", help="Print the text form after this pass, and end.")
@click.option("-o", "--output", metavar="PLAN", help="The plan file (default: NAME.fgplan here).")
@verbose_option
def command(
    graph: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
    print_after: tuple[str, ...],
    stop_after: str | None,
    output: str | None,
) -> None:
    """Check a graph, decide who runs what where, and write the plan.

    With --print-after or --stop-after, standard output holds texts that `flowgraph ir` reads.
    """
    if source_of(graph).kind != "graph":
        raise ConfigurationError(f"{graph} is no graph file", hint="GRAPH.py, or GRAPH.py:build")
    request = Request(target=graph, settings=settings, cluster=cluster, pins=pins)
    if print_after or stop_after:
        plan = _shown(request, costs, print_after, stop_after, output)
        if plan is None:
            return
    else:
        plan = compile_request(request, costs=load_costs(costs))
    file = Path(output or f"{plan.graph.name}.fgplan")
    write_plan(plan, file)
    from flowgraph.passes.explain import explain

    # Standard output is for the texts where texts were asked for.
    aside = bool(print_after)
    click.echo(explain(plan).partition("\n\n")[0], err=aside)
    click.echo(f"plan: {file} (flowgraph inspect {file} explains it)", err=aside)


def _shown(
    request: Request,
    costs: str | None,
    print_after: tuple[str, ...],
    stop_after: str | None,
    output: str | None,
) -> Plan | None:
    """The plan, while texts are printed; None when it ended before."""
    from flowgraph.cli.pass_texts import PassTexts, passes_shown, passes_to
    from flowgraph.passes.pipeline import PIPELINE, compile_graph, run_passes

    if stop_after and output:
        raise ConfigurationError(
            "--stop-after writes no plan, so that -o names none", hint="leave one of them out"
        )
    shown = passes_shown(print_after, "--print-after")
    passes = passes_to(stop_after, "--stop-after") if stop_after else PIPELINE
    declared = load_declared(request)
    texts = PassTexts(declared, shown=shown, named=frozenset([stop_after or ""]))
    with error_notes(lambda: texts.graph, request.cluster):
        cluster = cluster_for(declared, request.cluster)
        pins, measured = read_pin_texts(request.pins), load_costs(costs)
        plan = None
        if passes == PIPELINE:
            plan = compile_graph(declared, cluster, pins, costs=measured, watch=texts)
        else:
            run_passes(passes, declared, cluster, pins, costs=measured, watch=texts)
    if stop_after is None:
        return plan
    if stop_after not in shown:
        click.echo(texts.text(plan), nl=False)
    return None


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
