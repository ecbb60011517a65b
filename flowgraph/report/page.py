"""The report as one HTML page: from the headline down to the whole plan."""

import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from flowgraph.ir.binary import plan_hash
from flowgraph.ir.plan import Plan
from flowgraph.report.drawing import draw_graph
from flowgraph.report.figures import evaluation_charts, figure_charts, machine_charts
from flowgraph.report.headline import budgets, duration, headline, number
from flowgraph.report.history import History
from flowgraph.report.run_story import RunStory
from flowgraph.report.run_timeline import run_timeline
from flowgraph.report.timeline import timeline_svg
from flowgraph.report.troubles import troubles
from flowgraph.runtime.progress import first_and_last

STYLE = Path(__file__).with_name("style.css")

Ends = Mapping[str, Mapping[str, Mapping[str, float]]]


def page(plan: Plan, run: RunStory, *, began: float) -> str:
    """began: seconds since the epoch."""
    from flowgraph.passes.explain import explain

    ends = first_and_last([step.metrics for step in run.history.steps])
    main, technical = figure_charts(run.history, [module.name for module in plan.graph.modules])
    machine = machine_charts(run.history)
    sections = [
        _head(plan, run, began),
        _tiles(ends, run.history),
        _section("Learning", _charts(main) + _folded("How the training went", _charts(technical))),
        _section("Evaluations", _charts(evaluation_charts(run.history))),
        _section("Workers and time", _busy(run.history) + _charts(machine) + _last(plan, run)),
        _section("The graph", f'<div class="card scroll">{draw_graph(plan.graph)}</div>'),
        _section("First and last tenth of the steps", _ends_table(ends)),
        _section("What became of the samples", _samples(run.result)),
        _section("What went wrong", troubles(run.journal, _words)),
        _section("The plan", _folded("Who runs what where, and why", _text(explain(plan)))),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(plan.graph.name)}</title>\n<style>\n{STYLE.read_text()}</style></head>\n"
        f"<body>\n{chr(10).join(filter(None, sections))}\n</body></html>\n"
    )


def _head(plan: Plan, run: RunStory, began: float) -> str:
    facts = [
        ("steps", f"{len(run.history.steps):,}"),
        ("began", time.strftime("%Y-%m-%d %H:%M", time.localtime(began))),
        ("cluster", plan.cluster.name),
        ("plan", plan_hash(plan)[:12]),
    ]
    if "wall_s" in run.result:
        facts.insert(1, ("took", duration(run.result["wall_s"])))
    if "workers" in run.result:
        facts.append(("processes", str(len(run.result["workers"]))))
    if run.result:
        facts.append(("records a worker", budgets(plan.pool_bytes, run.spill_bytes)))
    meta = " &nbsp; ".join(f"{escape(name)} <b>{escape(value)}</b>" for name, value in facts)
    error = f'<p class="error">{escape(run.error)}</p>' if run.error else ""
    return (
        f'<header><div class="head"><h1>{escape(plan.graph.name)}</h1>'
        f'<span class="state {escape(run.state)}">{escape(run.state)}</span></div>'
        f'<p class="meta">{meta}</p>{error}</header>'
    )


def _tiles(ends: Ends, history: History) -> str:
    """One large number for each module, stage and evaluation: its headline at the end."""
    tiles = []
    for scope, named in ends.items():
        name = headline(named)
        if name is not None:
            both = named[name]
            start = number(both["first"]) if "first" in both else ""
            tiles.append(_tile(f"{scope}: {name}", both.get("last"), start, "first tenth"))
    firsts = {e.name: e for e in reversed(history.evaluations)}
    for last in {e.name: e for e in history.evaluations}.values():
        name = headline(last.figures)
        if name is not None:
            first = firsts[last.name]
            start = number(first.figures[name]) if first is not last else ""
            tiles.append(
                _tile(f"{last.name}: {name}", last.figures[name], start, "first evaluation")
            )
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _tile(what: str, value: float | None, start: str, of: str) -> str:
    if value is None:
        return ""
    since = f'<div class="from">from {start} ({of})</div>' if start else ""
    return (
        f'<div class="tile"><div class="what">{escape(what)}</div>'
        f'<div class="value">{number(value)}</div>{since}</div>'
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _charts(charts: list[str]) -> str:
    return f'<div class="charts">{"".join(charts)}</div>' if charts else ""


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if body else ""


def _text(text: str) -> str:
    return f'<div class="card"><pre>{escape(text)}</pre></div>'


def _busy(history: History) -> str:
    """Each worker's share of the time of all steps."""
    seconds = sum(step.seconds for step in history.steps)
    held: dict[str, float] = {}
    for step in history.steps:
        for name, share in step.busy.items():
            held[name] = held.get(name, 0.0) + share * step.seconds
    if not held or not seconds:
        return ""
    rows = "".join(
        f'<span>{escape(name)}</span><div class="track"><div class="full" '
        f'style="width:{100 * busy / seconds:.1f}%"></div></div>'
        f'<span class="share">{busy / seconds:.0%}</span>'
        for name, busy in held.items()
    )
    what = "Busy share of each worker, over all steps"
    return (
        f'<figure class="chart wide"><figcaption>{what}</figcaption>'
        f'<div class="busy">{rows}</div></figure>'
    )


def _last(plan: Plan, run: RunStory) -> str:
    """The last moments of the run, a lane a worker."""
    timeline = run_timeline(plan, run.path)
    if not timeline.spans:
        return ""
    drawn = timeline_svg(timeline, start=min(span.start for span in timeline.spans))
    return _folded("What each worker did in the last moments", f'<div class="scroll">{drawn}</div>')


def _ends_table(ends: Ends) -> str:
    rows = [
        (scope, name, *(number(both[end]) if end in both else "" for end in ("first", "last")))
        for scope, named in ends.items()
        for name, both in named.items()
    ]
    return _table(("module", "figure", "first", "last"), rows, right=2)


def _samples(result: Mapping[str, Any]) -> str:
    columns = ("admitted", "consumed", "dropped", "in_flight")
    rows = [
        (stream, *(f"{counts[column]:,}" for column in columns))
        for stream, counts in result.get("samples", {}).items()
    ]
    return _table(("stream / consumer", "admitted", "consumed", "dropped", "in flight"), rows)


def _words(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return _table(head, rows, right=len(head))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]], *, right: int = 1) -> str:
    """right: index of the first column of numbers."""
    if not rows:
        return ""

    def line(cells: tuple[str, ...], tag: str) -> str:
        made = (
            f"<{tag}{' class=n' if i >= right else ''}>{escape(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="card scroll"><table>{line(head, "th")}{body}</table></div>'
