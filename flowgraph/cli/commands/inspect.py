"""`flowgraph inspect`: a graph, a plan or a run in words, as text form, or as JSON."""

import json
from typing import Any

import click

from flowgraph.cli.options import Request, graph_options
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import compile_request, load_declared, load_plan, source_of
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan


@click.command("inspect")
@click.argument("target", metavar="GRAPH.py[:build]|PLAN|RUN_DIR")
@graph_options
@click.option(
    "--ir",
    "form",
    type=click.Choice(["flow", "plan"]),
    help="The text form: the graph as declared, or the plan.",
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@verbose_option
def command(
    target: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    form: str | None,
    as_json: bool,
) -> None:
    """Explain a graph, a plan, or how a run went. Runs nothing."""
    request = Request(target=target, settings=settings, cluster=cluster, pins=pins)
    source = source_of(target)
    if form == "flow":
        _show(_graph(request), as_json)
        return
    plan = load_plan(request)
    if form == "plan":
        _show(plan, as_json)
        return
    if source.kind == "run":
        from flowgraph.report.run_story import read_run

        run = read_run(source.path)
        click.echo(json.dumps(run.plain(plan)) if as_json else run.told())
        if as_json:
            return
    if as_json:
        click.echo(json.dumps(_described(plan)))
        return
    from flowgraph.passes.explain import explain

    click.echo(explain(plan), nl=False)


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


def _described(plan: Plan) -> dict[str, Any]:
    from flowgraph.ir.binary import plan_hash
    from flowgraph.ir.plain import to_plain

    return {"plan_hash": plan_hash(plan), "graph": plan.graph.name, "plan": to_plain(plan)}
