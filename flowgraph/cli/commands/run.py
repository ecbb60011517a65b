"""`flowgraph run`: a graph or a plan, to its end, watched."""

import faulthandler
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli.before_run import remarks
from flowgraph.cli.failure import explain
from flowgraph.cli.options import Request, costs_option, graph_options, size
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import load_plan, source_of
from flowgraph.cli.watched import watch
from flowgraph.ir.errors import ConfigurationError, RunFailed
from flowgraph.ir.plan import Plan
from flowgraph.ir.verify.runnable import verify_runnable

if TYPE_CHECKING:
    from flowgraph.runtime.options import RunOptions
    from flowgraph.runtime.progress import Observer, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The run's own options, as typed."""

    steps: int | None
    run_dir: str | None
    reference: bool
    only: int | None
    exact: bool
    record: bool
    checkpoint_every: int
    restarts: int
    silence: float
    liveness: float
    retries: int
    quarantine: int
    spill: int
    spill_dir: str
    listen: str
    as_json: bool


@click.command("run")
@click.argument("target", metavar="GRAPH.py[:build]|PLAN")
@graph_options
@costs_option
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="Steps to take.")
@click.option("--run-dir", metavar="DIR", help="Folder of the run (default: runs/NAME-TIME).")
@click.option(
    "--reference",
    is_flag=True,
    help="One process, nothing overlapped; breakpoint() works in your functions.",
)
@click.option(
    "--only",
    type=click.IntRange(min=0),
    metavar="ID",
    help="With --reference: replay this one sample.",
)
@click.option("--exact", is_flag=True, help="Bit-reproducible: equal on any plan of the graph.")
@click.option(
    "--record", is_flag=True, help="Keep the first update's rows and gradients under DIR/record."
)
@click.option(
    "--checkpoint-every",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Steps between checkpoints (default 0: one every 30 s).",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="How often lost workers are replaced.",
)
@click.option(
    "--silence",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="A worker that holds work and says nothing for so long is lost.",
)
@click.option(
    "--liveness",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="A process without a sign of life for so long is lost (0: never).",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="How often work is tried again when your code raised in it.",
)
@click.option(
    "--quarantine",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The most samples on which your code raises that are put aside.",
)
@click.option(
    "--spill",
    type=size,
    default="0",
    metavar="SIZE",
    help="The most that a worker keeps on disk of what its memory has no room for (default: 0).",
)
@click.option(
    "--spill-dir",
    type=click.Path(exists=True, file_okay=False, writable=True, resolve_path=True),
    default="",
    metavar="DIR",
    help="Where it is kept (default: the run's scratch folder).",
)
@click.option(
    "--listen",
    default="",
    metavar="tcp|tcp://ADDRESS:PORT",
    help="Workers connect by tcp with CURVE, on loopback unless told (default: a private socket).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one last line of JSON.")
@verbose_option
def command(
    target: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
    **rest: Any,
) -> None:
    """Run a graph, or a plan that was compiled from one, to its end."""
    asked = Asked(**rest)
    if asked.only is not None and not asked.reference:
        raise click.UsageError("--only replays a sample in the reference executor: add --reference")
    request = Request(target=target, settings=settings, cluster=cluster, pins=pins, costs=costs)
    if source_of(target).kind == "run":
        raise ConfigurationError(
            f"{target} is a run directory", hint=f"flowgraph run {target}/plan.fgplan"
        )
    plan = load_plan(request)
    verify_runnable(plan)
    for remark in remarks(plan, exact=asked.exact, spill=asked.spill):
        click.echo(remark, err=True)
    folder = run_folder(asked.run_dir, plan.graph.name)
    try:
        _run(plan, asked, folder)
    except RunFailed as error:
        explain(error, folder, request, exact=asked.exact, reference=asked.reference)
        raise


def run_folder(asked: str | None, name: str) -> Path:
    """The folder asked for, or a new name under `runs/`."""
    if asked is not None:
        folder = Path(asked)
        if folder.exists():
            raise ConfigurationError(
                f"run directory {asked} exists already",
                hint=f"another --run-dir; or flowgraph resume {asked} to go on with it",
            )
        return folder
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = (stem if i == 1 else f"{stem}-{i}" for i in range(1, 1000))
    return next(p for p in (Path("runs", n) for n in names) if not p.exists())


def _run(plan: Plan, asked: Asked, folder: Path) -> None:
    from flowgraph.runtime.options import RunOptions
    from flowgraph.runtime.transport.endpoint import listen_at

    listen_at(asked.listen, folder="", name="")  # refused before there is a run directory
    options = RunOptions(
        run_dir=str(folder.absolute()),
        steps=asked.steps,
        exact=asked.exact,
        record=asked.record,
        only=asked.only,
        checkpoint_every=asked.checkpoint_every,
        restarts=asked.restarts,
        silence_s=asked.silence,
        liveness_s=asked.liveness,
        retries=asked.retries,
        quarantine=asked.quarantine,
        spill_bytes=asked.spill,
        spill_dir=asked.spill_dir,
        listen=asked.listen,
    )

    def execute(observe: "Observer") -> "RunResult":
        if asked.reference:
            return _reference(plan, options, observe)
        from flowgraph.runtime.supervise import run_plan

        return run_plan(plan, options, observe)

    watch(plan, folder, execute, as_json=asked.as_json, plain=asked.reference, only=asked.only)


def _reference(plan: Plan, options: "RunOptions", observe: "Observer") -> "RunResult":
    """The reference executor, told as a run is when the user ends it."""
    from flowgraph.runtime.reference.executor import run_reference

    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # a crash in C code is told with its Python lines
    try:
        return run_reference(plan, options, observe)
    except KeyboardInterrupt as error:
        # It went through the user's coroutine; asyncio would report that task as unretrieved.
        logging.getLogger("asyncio").disabled = True
        raise RunFailed("interrupted: the run was ended") from error
