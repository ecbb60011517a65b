"""The explanation as one HTML page that needs nothing else: no script, no request."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowgraph.inspect.facts import Facts
from flowgraph.inspect.graphviz import graph_svg
from flowgraph.inspect.neighbour_words import neighbour_words
from flowgraph.inspect.stage_words import stage_words
from flowgraph.inspect.text import bound_words, edge_words, part_lines, room_words, schedule_words
from flowgraph.passes.words import counted, figure, listed, seconds_text, size_text

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATE = Path(__file__).with_name("page.html.j2")
STYLES = (
    Path(__file__).parent.parent / "report" / "style.css",
    Path(__file__).with_name("page.css"),
)
MOST_ROWS = 500
"""Rows of a table; more make a page that nobody reads and every browser feels."""


def page(facts: Facts) -> str:
    """Complete HTML, light or dark as the reader's system is."""
    plan = facts.plan
    shared = all(plan.cluster.kind(n.device).kind == "cpu" for n in plan.cluster.nodes)
    return _template().render(
        facts=facts,
        plan=plan,
        style="\n".join(file.read_text() for file in STYLES),
        picture=graph_svg(plan.graph),
        stages=_stages(facts),
        tiles=_tiles(facts),
        intro=[schedule_words(facts), *([bound_words(facts)] if facts.bound_s else [])],
        parts=[(part, list(part_lines(part, shared=shared))) for part in facts.parts[:MOST_ROWS]],
        legs=[_leg(facts, i) for i in range(len(facts.path.legs[:MOST_ROWS]))],
        hidden=facts.hidden,
        edges=[edge_words(edge) for edge in facts.edges[:MOST_ROWS]],
        rooms=room_words(facts),
        neighbours=list(neighbour_words(plan)),
        decisions=plan.decisions[:MOST_ROWS],
        left_out={
            "stages": len(plan.graph.stages) - MOST_ROWS,
            "decisions": len(plan.decisions) - MOST_ROWS,
        },
    )


@lru_cache(maxsize=1)
def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined  # 60 ms, for the few who want a page

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(seconds=seconds_text, size=size_text, listed=listed)
    return environment.from_string(TEMPLATE.read_text())


def _stages(facts: Facts) -> list[tuple[str, str, str, str]]:
    """(stage, operation, what it does, groups whose workers run it)."""
    runs: dict[str, list[str]] = {}
    for task in facts.plan.tasks:
        for name in task.stages:
            runs.setdefault(name, []).append(task.group)
    graph = facts.plan.graph
    return [
        (stage.name, stage.op, stage_words(stage, graph), ", ".join(runs.get(stage.name, ())))
        for stage in graph.stages[:MOST_ROWS]
    ]


def _tiles(facts: Facts) -> list[tuple[str, str, str]]:
    """(what, value, a few words more)."""
    plan = facts.plan
    processes = sum(group.replicas for group in plan.groups)
    cores = sum(node.cores for node in plan.cluster.nodes)
    devices = plan.cluster.total_devices
    schedule = plan.schedule
    return [
        ("a step takes", seconds_text(facts.step_s), facts.basis),
        ("steps a second", figure(facts.rate), f"{figure(facts.rate * schedule.batch)} samples"),
        ("samples a step", f"{schedule.batch:,}", counted(schedule.updates, "optimizer update")),
        ("worker processes", f"{processes:,}", "and one orchestrator"),
        ("devices used", f"{facts.devices_used:,}", f"of {devices:,}; {counted(cores, 'core')}"),
    ]


def _leg(facts: Facts, i: int) -> dict[str, Any]:
    """One piece of the bar: share of the step, and a colour of the page's palette."""
    leg = facts.path.legs[i]
    share = leg.seconds / facts.step_s if facts.step_s else 0.0
    return {"leg": leg, "share": share, "colour": i % 8}
