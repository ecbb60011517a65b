"""Which curves a report has: one chart a figure, one line a module."""

from collections.abc import Sequence

from flowgraph.report.curves import Series, chart
from flowgraph.report.headline import LEADING, TECHNICAL, main_figures
from flowgraph.report.history import History

Points = list[tuple[float, float]]


def figure_charts(history: History, modules: Sequence[str]) -> tuple[list[str], list[str]]:
    """Charts of what the training achieves, and of how it went; the leading figures first.

    modules: in the graph's order, since they have the same colours as in its drawing.
    """
    found: dict[str, dict[str, Points]] = {}
    for step in history.steps:
        for scope, named in step.metrics.items():
            for name, value in named.items():
                points = found.setdefault(name, {}).setdefault(scope, [])
                points.append((step.step + 1.0, value))
    scopes = dict.fromkeys([*modules, *(scope for by in found.values() for scope in by)])
    colours = {scope: i for i, scope in enumerate(scopes)}
    drawn = {name: _by_label(name, by, colours) for name, by in found.items()}
    order = [name for name in LEADING if name in drawn]
    order += [name for name in drawn if name not in (*LEADING, *TECHNICAL)]
    return (
        [drawn[name] for name in order if drawn[name]],
        [drawn[name] for name in sorted(drawn) if name in TECHNICAL and drawn[name]],
    )


def evaluation_charts(history: History) -> list[str]:
    """One chart of all figures for a lone evaluation; with several, one chart a figure."""
    names = list(dict.fromkeys(evaluation.name for evaluation in history.evaluations))
    found: dict[str, dict[str, Points]] = {}
    for evaluation in history.evaluations:
        for figure, value in main_figures(evaluation.figures).items():
            title, line = (names[0], figure) if len(names) == 1 else (figure, evaluation.name)
            points = found.setdefault(title, {}).setdefault(line, [])
            points.append((float(evaluation.step), value))
    charts = []
    for title, by in found.items():
        series = [
            Series(label=label, points=points, colour=i, marks=True)
            for i, (label, points) in enumerate(by.items())
        ]
        charts.append(chart(title, series, x_label="after step"))
    return [drawn for drawn in charts if drawn]


def machine_charts(history: History) -> list[str]:
    """Seconds a step and trained tokens a second."""
    seconds = [(step.step + 1.0, step.seconds) for step in history.steps]
    tokens = [
        (step.step + 1.0, step.tokens / step.seconds) for step in history.steps if step.seconds
    ]
    charts = [
        chart("seconds a step", [Series(label="seconds", points=seconds, colour=4)]),
        chart("trained tokens a second", [Series(label="tokens/s", points=tokens, colour=5)]),
    ]
    return [drawn for drawn in charts if drawn]


def _by_label(title: str, by: dict[str, Points], colours: dict[str, int]) -> str:
    series = [
        Series(label=label, points=points, colour=colours[label]) for label, points in by.items()
    ]
    return chart(title, series)
