"""`flowgraph diff`: what differs between two plans, in words."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flowgraph.cli.options import Request
from flowgraph.cli.session import verbose_option
from flowgraph.cli.target import load_plan
from flowgraph.ir.plan import Plan

if TYPE_CHECKING:
    from flowgraph.inspect.differences import Difference

DIFFERENT = 1
"""Exit status, as that of diff(1)."""

TITLES = {
    "graph": "the graph",
    "cluster": "the cluster",
    "step": "a step",
    "module": "who runs what where",
    "staleness": "staleness",
    "pins": "pins",
    "schedule": "the schedule",
    "channels": "channels",
    "plan": "the plan",
}
"""Heads of the groups of sentences, in the order of `differences`."""


@click.command("diff")
@click.argument("before", metavar="PLAN")
@click.argument("after", metavar="PLAN")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON.")
@verbose_option
def command(before: str, after: str, as_json: bool) -> int:
    """Say what the second plan does differently from the first. Exit status 1 where it does.

    Either may also be GRAPH.py or a run directory.
    """
    from flowgraph.inspect.differences import differences
    from flowgraph.inspect.facts import facts_of
    from flowgraph.ir.binary import plan_hash

    plans = [load_plan(Request(target=target)) for target in (before, after)]
    found = differences(facts_of(plans[0]), facts_of(plans[1]))
    if as_json:
        hashes = [plan_hash(plan) for plan in plans]
        told = [asdict(difference) for difference in found]
        click.echo(json.dumps({"plan_hashes": hashes, "equal": not found, "differences": told}))
    else:
        click.echo(_told(plans[0], found), nl=False)
    return DIFFERENT if found else 0


def _told(plan: Plan, found: "tuple[Difference, ...]") -> str:
    if not found:
        return f"{plan.graph.name}: the plans do the same\n"
    lines = []
    for about, title in TITLES.items():
        own = [difference.said for difference in found if difference.about == about]
        if own:
            lines += [title, *(f"  {said}" for said in own)]
    return "\n".join(lines) + "\n"
