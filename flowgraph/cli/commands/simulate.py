"""`flowgraph simulate`: what a run of the plan would take, where it would wait, and what for."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowgraph.cli.options import Request, costs_option, graph_options
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import load_plan
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan

if TYPE_CHECKING:
    from flowgraph.runtime.simulate import Faults, SimResult

STEPS = 20
"""Steps that are simulated unless told: enough for the tenth and the ninetieth percentile."""


@click.command("simulate")
@click.argument("target", metavar="GRAPH.py[:build]|PLAN|RUN_DIR")
@graph_options
@costs_option
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, metavar="N", show_default=True)
@click.option("--seed", type=int, default=0, metavar="S", help="Of lengths, and of faults' delays.")
@click.option("--faults", metavar="FILE", help="YAML or JSON list of what goes wrong.")
@click.option("--from-run", metavar="RUN_DIR", help="Times and lengths as this run had them.")
@click.option("--exact", is_flag=True, help="As `run --exact` would go.")
@click.option("--trace", metavar="FILE", help="Write a Chrome trace, which Perfetto opens.")
@click.option("--svg", metavar="FILE", help="Write the timeline as a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one last line of JSON.")
@verbose_option
def command(
    target: str,
    settings: tuple[str, ...],
    cluster: str | None,
    pins: tuple[str, ...],
    costs: str | None,
    steps: int,
    seed: int,
    faults: str | None,
    from_run: str | None,
    exact: bool,
    trace: str | None,
    svg: str | None,
    as_json: bool,
) -> None:
    """Predict a run in virtual time: nothing of yours is run, no worker is started."""
    plan = load_plan(
        Request(target=target, settings=settings, cluster=cluster, pins=pins, costs=costs)
    )
    from flowgraph.runtime.simulate import simulate

    result = simulate(
        plan,
        steps=steps,
        seed=seed,
        faults=_faults(faults, plan) if faults else None,
        exact=exact,
        **(_measured(from_run, plan) if from_run else {}),
    )
    _write_pictures(plan, result, trace, svg)
    click.echo(told(plan, result), err=as_json)
    if as_json:
        click.echo(json.dumps(result.plain()))


def _faults(file: str, plan: Plan) -> "Faults":
    import yaml

    from flowgraph.runtime.simulate.faults import read_faults

    try:
        data = yaml.safe_load(Path(file).read_text())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is neither YAML nor JSON: {error}") from error
    workers = [f"{group.name}-{i}" for group in plan.groups for i in range(group.replicas)]
    return read_faults(data, workers, file)


def _measured(folder: str, plan: Plan) -> dict[str, Any]:
    """Times and lengths of a run of the same graph, on whatever plan."""
    from flowgraph.runtime.simulate.measure import measure, read_run

    ran, messages = read_run(Path(folder))
    if ran.graph.name != plan.graph.name:
        raise ConfigurationError(
            f"{folder} is a run of {ran.graph.name}, not of {plan.graph.name}",
            hint=f"a run directory of {plan.graph.name}",
        )
    found = measure(ran, messages)
    return {"times": found.times, "lengths": found.lengths}


def _write_pictures(plan: Plan, result: "SimResult", trace: str | None, svg: str | None) -> None:
    for file, make in ((trace, _trace), (svg, _svg)):
        if file:
            try:
                Path(file).write_text(make(plan, result))
            except OSError as error:
                raise ConfigurationError(f"cannot write {file}: {error.strerror}") from error


def _trace(plan: Plan, result: "SimResult") -> str:
    from flowgraph.runtime.simulate.timeline import chrome_trace

    return json.dumps(chrome_trace(result.timeline, plan.graph.name))


def _svg(_plan: Plan, result: "SimResult") -> str:
    from flowgraph.report.timeline import timeline_svg

    picture = timeline_svg(result.timeline)
    return picture.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def told(plan: Plan, result: "SimResult") -> str:
    """The result in a few lines."""
    basis = "measured times" if result.measured else "estimated times"
    step = result.step_s
    lines = [
        f"{plan.graph.name} on {plan.cluster.name}, {result.steps} steps simulated with {basis}",
        f"  step      {_s(step['p50'])} (p10 {_s(step['p10'])}, p90 {_s(step['p90'])}); "
        f"its work alone would allow {_s(result.bound_s)}",
        f"  training  {_s(result.exposed_training_s)} of a step are not hidden behind rollout",
        f"  busy      {_shares(result.utilisation['modules'])}",
        f"  devices   {_shares(result.utilisation['devices'])}",
    ]
    waits = [
        (seconds, f"{group} for {cause}")
        for cause, groups in result.stalls.items()
        for group, seconds in groups.items()
    ]
    shown = sorted(waits, key=lambda wait: (-wait[0], wait[1]))[:4]
    lines.append("  waits     " + "; ".join(f"{what} {_s(seconds)}" for seconds, what in shown))
    if result.checkpoint_s >= 1.0:
        where = "within" if result.measured else "beside"
        lines.append(f"  saving    a checkpoint takes {_s(result.checkpoint_s)}, {where} the steps")
    if result.restarts:
        how = "stage workers and engines alone, ranks from the last checkpoint"
        lines.append(f"  restarts  {result.restarts} ({how})")
    if result.outcome != "finished":
        lines.append(f"  the run does not finish: it {_ENDS[result.outcome]}: {result.cause}")
    return "\n".join(lines)


_ENDS = {"failed": "fails", "stalled": "stands still"}


def _shares(shares: Any) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1e3 * seconds:.3g} ms"
