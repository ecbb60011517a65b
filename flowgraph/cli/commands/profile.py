"""`flowgraph profile`: measure a graph on this machine into a costs file, which compile reads."""

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from flowgraph.cli.options import Request, graph_options
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import compile_request, load_declared, source_of
from flowgraph.ir.errors import ConfigurationError

STEPS = 3
"""Steps that are timed unless told, after one that warms up."""


@click.command("profile")
@click.argument("graph", metavar="GRAPH.py[:build]")
@graph_options
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, metavar="N", show_default=True)
@click.option("--meta", is_flag=True, help="Count models only: no step is run.")
@click.option("-o", "--output", metavar="FILE", help="The costs file (default: NAME.costs.json).")
@click.option("--json", "as_json", is_flag=True, help="Print the costs as one last line of JSON.")
@verbose_option
def command(
    graph: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    steps: int,
    meta: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Measure what a graph's parts take here: `compile --costs FILE` plans with it."""
    if source_of(graph).kind != "graph":
        raise ConfigurationError(f"{graph} is no graph file", hint="GRAPH.py, or GRAPH.py:build")
    request = Request(target=graph, settings=settings, cluster=cluster, pins=pins)
    declared = load_declared(request)
    if meta:
        from flowgraph.profile.meta import count_models

        costs: dict[str, Any] = {"values": count_models(declared)}
    else:
        plan = compile_request(request, declared)
        from flowgraph.profile.profile import profile

        with tempfile.TemporaryDirectory(prefix="flowgraph-profile-") as folder:
            costs = profile(plan, Path(folder, "run"), steps=steps)
    file = Path(output or f"{declared.name}.costs.json")
    try:
        file.write_text(json.dumps(costs, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from error
    for name, found in sorted(costs["values"].items()):
        told = f"{found['value']:.4g} ± {100 * found['spread']:.0f} %"
        click.echo(f"{name:32} {told}  ({found['count']:g} times)", err=as_json)
    click.echo(f"costs: {file} (flowgraph compile {graph} --costs {file})", err=as_json)
    if as_json:
        click.echo(json.dumps(costs))
