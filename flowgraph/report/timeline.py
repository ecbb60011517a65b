"""Who did what when, as SVG: a lane a worker, colours by kind of work, lines where steps end."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from flowgraph.runtime.simulate.timeline import Span, Timeline

WIDTH, LEFT, LANE, TOP, BOTTOM = 1120, 150, 18, 26, 24
MOST_RECTANGLES = 4000
"""More cannot be told apart, and make a page slow: neighbours of one kind are drawn as one."""

COLOURS: Mapping[str, str] = {
    "host": "#8da0cb",
    "rollout": "#66c2a5",
    "load": "#ffd92f",
    "apply": "#e78ac3",
    "train": "#fc8d62",
    "backward": "#e5654b",
    "update": "#a6761d",
    "evaluate": "#b3b3b3",
    "save": "#5b5b5b",
    "events": "#c9c9d6",
}


def timeline_svg(timeline: Timeline, *, start: float = 0.0, end: float | None = None) -> str:
    """The workers' lanes between two times (seconds), as one `<svg>` that needs nothing else."""
    spans = [span for span in timeline.spans if end is None or span.start < end]
    spans = [span for span in spans if span.end > start]
    last = max((span.end for span in spans), default=start) if end is None else end
    lanes = {worker: place for place, worker in enumerate(timeline.workers)}
    scale = (WIDTH - LEFT - 10) / max(last - start, 1e-12)
    height = TOP + LANE * len(lanes) + BOTTOM

    def x(time: float) -> float:
        return round(LEFT + (min(max(time, start), last) - start) * scale, 2)

    drawn = [_legend(spans)]
    for worker, lane in lanes.items():
        y = TOP + lane * LANE
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 13}" text-anchor="end">{escape(worker)}</text>')
        drawn.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{LANE - 3}" ')
        drawn.append('fill="currentColor" opacity="0.05"/>')
    for span in _thin(spans, (last - start) / (WIDTH - LEFT)):
        y = TOP + lanes[span.worker] * LANE
        width = max(0.4, x(span.end) - x(span.start))
        colour = COLOURS.get(span.kind, "#999")
        drawn.append(
            f'<rect x="{x(span.start)}" y="{y}" width="{width:.2f}" height="{LANE - 3}" '
            f'fill="{colour}"><title>{escape(_told(span))}</title></rect>'
        )
    drawn += _marks(timeline, start, last, x, height)
    drawn.append(f'<text x="{LEFT}" y="{height - 6}">{start:.3g} s</text>')
    drawn.append(f'<text x="{WIDTH - 10}" y="{height - 6}" text-anchor="end">{last:.3g} s</text>')
    return (
        f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="timeline of all workers" font-family="sans-serif" font-size="11" '
        f'fill="currentColor">{"".join(drawn)}</svg>'
    )


def _marks(
    timeline: Timeline, start: float, last: float, x: Callable[[float], float], height: int
) -> list[str]:
    return [
        f'<line x1="{x(mark.time)}" x2="{x(mark.time)}" y1="{TOP - 4}" y2="{height - BOTTOM}" '
        f'stroke="currentColor" opacity="0.35"><title>{escape(mark.what)}</title></line>'
        for mark in timeline.marks
        if start <= mark.time <= last
    ]


def _told(span: Span) -> str:
    step = f", step {span.step}" if span.step >= 0 else ""
    took = f"{1e3 * (span.end - span.start):.3g} ms"
    return f"{span.worker}: {span.what or span.kind}{step}, {took} ({1e3 * span.work:.3g} of work)"


def _legend(spans: Sequence[Span]) -> str:
    kinds = [kind for kind in COLOURS if any(span.kind == kind for span in spans)]
    parts = []
    for place, kind in enumerate(kinds):
        at = LEFT + 92 * place
        parts.append(f'<rect x="{at}" y="6" width="10" height="10" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{at + 14}" y="15">{kind}</text>')
    return "".join(parts)


def _thin(spans: Sequence[Span], pixel: float) -> list[Span]:
    """Joins neighbours of one kind that stand closer than a pixel, where there are too many."""
    if len(spans) <= MOST_RECTANGLES:
        return list(spans)
    open_spans: dict[str, Span] = {}
    done: list[Span] = []
    for span in sorted(spans, key=lambda s: s.start):
        before = open_spans.get(span.worker)
        if before and before.kind == span.kind and span.start - before.end < pixel:
            span = Span(
                worker=span.worker,
                kind=span.kind,
                start=before.start,
                end=max(before.end, span.end),
                work=before.work + span.work,
                step=span.step,
            )
        elif before:
            done.append(before)
        open_spans[span.worker] = span
    return [*done, *open_spans.values()]
