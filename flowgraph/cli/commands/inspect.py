"""`flowgraph inspect`: a graph, a plan or a run explained: in words, as a page, as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowgraph.cli.options import Request, costs_option, graph_options
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import compile_request, load_declared, load_plan, source_of
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan

if TYPE_CHECKING:
    from flowgraph.inspect.facts import Facts


@click.command("inspect")
@click.argument("target", metavar="GRAPH.py[:build]|PLAN|RUN_DIR")
@graph_options
@costs_option
@click.option(
    "--ir",
    "form",
    type=click.Choice(["flow", "plan"]),
    help="The text form: the graph as declared, or the plan.",
)
@click.option("--html", metavar="FILE", help="Write the explanation as one page.")
@click.option("--decisions", is_flag=True, help="Every decision of every pass, in tables.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@verbose_option
def command(
    target: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
    form: str | None,
    html: str | None,
    decisions: bool,
    as_json: bool,
) -> None:
    """Explain a graph, a plan, or how a run went. Runs nothing."""
    request = Request(target=target, settings=settings, cluster=cluster, pins=pins, costs=costs)
    source = source_of(target)
    if form == "flow":
        _show(_graph(request), as_json)
        return
    plan = load_plan(request)
    if form == "plan":
        _show(plan, as_json)
        return
    from flowgraph.inspect.facts import facts_of

    facts = facts_of(plan)
    if html:
        _write_page(facts, html)
        click.echo(f"page: {html}", err=as_json)
    if source.kind == "run":
        from flowgraph.report.run_story import read_run

        run = read_run(source.path)
        click.echo(json.dumps(run.plain(plan)) if as_json else run.told())
        if as_json:
            return
    if as_json or not html:
        click.echo(_explained(facts, decisions, as_json), nl=False)


def _explained(facts: "Facts", decisions: bool, as_json: bool) -> str:
    if as_json:
        from flowgraph.inspect.plain import described

        return json.dumps(described(facts)) + "\n"
    if decisions:
        from flowgraph.passes.explain import explain

        return explain(facts.plan)
    from flowgraph.inspect.text import told

    # Without a terminal click takes the style out again.
    return told(facts, lambda title: click.style(title.upper(), bold=True))


def _write_page(facts: "Facts", file: str) -> None:
    from flowgraph.inspect.page import page

    try:
        Path(file).write_text(page(facts))
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from error


def _graph(request: Request) -> Graph:
    """As its file declares it; in a plan, as the passes left it."""
    if source_of(request.target).kind != "graph":
        return load_plan(request).graph
    graph = load_declared(request)
    if request.cluster or request.pins:
        compile_request(request, graph)  # what was asked for must at least be possible
    return graph


def _show(value: Graph | Plan, as_json: bool) -> None:
    from flowgraph.ir.plain import to_plain
    from flowgraph.ir.text import print_text

    if as_json:
        click.echo(json.dumps(to_plain(value)))
    else:
        click.echo(print_text(value), nl=False)
