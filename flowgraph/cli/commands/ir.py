"""`flowgraph ir`: read a text form, verify it, run passes on it, and print it."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from flowgraph.cli.costs_file import load_costs
from flowgraph.cli.error_notes import error_notes
from flowgraph.cli.options import read_pin_texts
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import cluster_for
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import Graph
from flowgraph.ir.plan import Plan

END = re.compile(r"^-----$", re.MULTILINE)
"""A line that ends the text: what stands below it is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked for beside the file, as it was typed."""

    passes: tuple[str, ...] = ()
    print_after: tuple[str, ...] = ()
    cluster: str | None = None
    pins: tuple[str, ...] = ()
    costs: str | None = None


@click.command("ir")
@click.argument("file", metavar="FILE.fg|-")
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="PASS",
    help="Run the compiler up to this pass, and say what it decided; may be given several times.",
)
@click.option(
    "--print-after",
    multiple=True,
    metavar="PASS|all",
    help="Print the text form after this pass too; may be given several times.",
)
@click.option(
    "--cluster",
    metavar="FILE",
    help="What the plan may use: YAML, or a text form (default: the text's own, or this machine).",
)
@click.option(
    "--pin",
    "pins",
    multiple=True,
    metavar="SUBJECT.DECISION=VALUE",
    help="Fix a decision of the compiler's.",
)
@click.option("--costs", metavar="FILE", help="What `flowgraph profile` measured.")
@verbose_option
def command(
    file: str,
    passes: tuple[str, ...],
    print_after: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
) -> None:
    """Read a graph, plan or cluster in text form, verify it, run passes on it, and print it.

    Everything below a line `-----` is left out.
    """
    found = _read(file)
    wishes = Wishes(passes=passes, print_after=print_after, cluster=cluster, pins=pins, costs=costs)
    _verify(found)
    if passes or print_after:
        _run(found, wishes)
        return
    if cluster or pins or costs:
        raise ConfigurationError(
            "--cluster, --pin and --costs are for passes", hint="--pass PASS runs one"
        )
    from flowgraph.ir.text import print_text

    click.echo(print_text(found), nl=False)


def _read(file: str) -> Graph | Plan | Cluster:
    """The text's document. Raises ConfigurationError, with the place in the text."""
    from flowgraph.ir.text import parse

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"{file} is no text", hint="flowgraph inspect explains a plan file"
        ) from error
    return parse(END.split(text, maxsplit=1)[0], "<stdin>" if file == "-" else file)


def _verify(found: Graph | Plan | Cluster) -> None:
    from flowgraph.ir.verify import verify_cluster, verify_flow, verify_plan

    if isinstance(found, Cluster):
        verify_cluster(found)
        return
    graph = found.graph if isinstance(found, Plan) else found
    with error_notes(lambda: graph):
        verify_flow(graph)
    if isinstance(found, Plan):
        with error_notes(lambda: found):
            verify_plan(found)


def _run(found: Graph | Plan | Cluster, wishes: Wishes) -> None:
    """Run the passes up to the last named one, and print what they made."""
    from flowgraph.cli.pass_texts import PassTexts, pass_names, passes_shown, passes_to
    from flowgraph.passes.pipeline import PIPELINE, compile_graph, run_passes

    if isinstance(found, Cluster):
        raise ConfigurationError("passes run on a graph or a plan, not on a cluster")
    graph = found.graph if isinstance(found, Plan) else found
    runs = [passes_to(name, "--pass") for name in wishes.passes]
    shown = passes_shown(wishes.print_after, "--print-after")
    if not runs:
        last = max(shown, key=pass_names().index)
        runs = [passes_to(last, "--print-after")]
    passes = max(runs, key=len)
    texts = PassTexts(graph, shown=shown, named=frozenset(wishes.passes))
    with error_notes(lambda: texts.graph, wishes.cluster):
        cluster = _cluster(found, wishes.cluster)
        pins, costs = read_pin_texts(wishes.pins), load_costs(wishes.costs)
        plan = None
        if passes == PIPELINE:  # the plan is checked too, and says what no pass does
            plan = compile_graph(graph, cluster, pins, costs=costs, watch=texts)
        else:
            run_passes(passes, graph, cluster, pins, costs=costs, watch=texts)
    if wishes.passes and passes[-1].name not in shown:
        click.echo(texts.text(plan), nl=False)


def _cluster(found: Graph | Plan, file: str | None) -> Cluster:
    """The one asked for, else the plan's, the graph's own, or this machine."""
    if file is not None and file.endswith(".fg"):
        made = _read(file)
        if not isinstance(made, Cluster):
            raise ConfigurationError(
                f"{file} is the text of a {type(made).__name__.lower()}, not of a cluster"
            )
        return made
    if file is None and isinstance(found, Plan):
        return found.cluster
    return cluster_for(found.graph if isinstance(found, Plan) else found, file)
