"""Line charts as SVG: faint values, bold moving means, round ticks; the page's colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from flowgraph.report.headline import number

WIDTH, HEIGHT = 560, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 30
MOST_POINTS = 300
"""Points drawn of a series: more cannot be told apart at this width."""

COLOURS = 8
"""Series colours that the style sheet has."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """points: (step, value), steps ascending. colour: index of a colour of the page.

    marks: each point counts and is marked; otherwise a moving mean is drawn over faint values.
    """

    label: str
    points: Points
    colour: int
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """From data to pixels, linearly."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def chart(title: str, series: Sequence[Series], *, x_label: str = "step") -> str:
    """A figure with a title, a legend and the curves; "" when no series has a finite point."""
    shown = [_finite(s) for s in series]
    shown = [s for s in shown if s.points]
    if not shown:
        return ""
    xs = [x for s in shown for x, _ in s.points]
    ticks = _value_ticks([y for s in shown for _, y in s.points])
    x = Scale(min(xs), max(max(xs), min(xs) + 1), LEFT, WIDTH - RIGHT)
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    drawn = [_grid(x, y, ticks, x_label), *(_curve(s, x, y) for s in shown)]
    return (
        f'<figure class="chart"><figcaption>{escape(title)}{_legend(shown)}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(drawn)}</svg></figure>"
    )


def smooth(points: Points, window: int) -> list[tuple[float, float]]:
    """Each value replaced by the mean of those at most `window // 2` places before and after."""
    values = [y for _, y in points]
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    half = window // 2
    smoothed = []
    for i, (x, _) in enumerate(points):
        a, b = max(0, i - half), min(len(values), i + half + 1)
        smoothed.append((x, (sums[b] - sums[a]) / (b - a)))
    return smoothed


def thin(points: Points, most: int) -> list[tuple[float, float]]:
    """At most `most` points, each the mean of its share of the given ones."""
    count = min(most, len(points))
    thinned = []
    for i in range(count):
        share = points[len(points) * i // count : len(points) * (i + 1) // count]
        thinned.append(
            (sum(x for x, _ in share) / len(share), sum(y for _, y in share) / len(share))
        )
    return thinned


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten that enclose low and high.

    >>> round_ticks(0.02, 0.61)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * m for m in (1, 2, 5, 10) if power * m * about >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def _value_ticks(values: Sequence[float]) -> list[float]:
    """Shares are shown in 0..1; other positive values from 0 when that wastes little."""
    low, high = min(values), max(values)
    if low >= 0 and 0.3 < high <= 1:
        return [0.0, 0.25, 0.5, 0.75, 1.0]
    if 0 < low < 0.5 * high:
        low = 0.0
    return round_ticks(low, high)


def _finite(series: Series) -> Series:
    points = [(x, y) for x, y in series.points if math.isfinite(y)]
    return Series(label=series.label, points=points, colour=series.colour, marks=series.marks)


def _grid(x: Scale, y: Scale, ticks: Sequence[float], x_label: str) -> str:
    parts = []
    for tick in ticks:
        at = y.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{at + 4}" text-anchor="end">')
        parts.append(f"{_tick(tick)}</text>")
    steps = round_ticks(x.low, x.high, about=6)
    for step in steps:
        if x.low <= step <= x.high and step == int(step):
            parts.append(f'<text class="tick" x="{x.at(step)}" y="{HEIGHT - 12}" ')
            parts.append(f'text-anchor="middle">{int(step)}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" text-anchor="end">')
    parts.append(f"{escape(x_label)}</text>")
    return "".join(parts)


def _tick(value: float) -> str:
    return f"{value:.0e}" if value and abs(value) < 1e-3 else f"{value:,g}"


def _curve(series: Series, x: Scale, y: Scale) -> str:
    colour = f"s{series.colour % COLOURS}"
    if series.marks:
        dots = "".join(
            f'<circle class="dot {colour}" cx="{x.at(a)}" cy="{y.at(b)}" r="3.5">'
            f"<title>{escape(series.label)}, step {a:g}: {number(b)}</title></circle>"
            for a, b in series.points
        )
        return f'<path class="mean {colour}" d="{_path(series.points, x, y)}"/>{dots}'
    window = max(1, len(series.points) // 20)
    raw = _path(thin(series.points, MOST_POINTS), x, y)
    mean = thin(smooth(series.points, window), MOST_POINTS)
    a, b = mean[-1]
    return (
        f'<path class="raw {colour}" d="{raw}"/>'
        f'<path class="mean {colour}" d="{_path(mean, x, y)}"/>'
        f'<circle class="dot {colour}" cx="{x.at(a)}" cy="{y.at(b)}" r="3"/>'
    )


def _path(points: Points, x: Scale, y: Scale) -> str:
    return "M" + "L".join(f"{x.at(a)},{y.at(b)}" for a, b in points)


def _legend(series: Sequence[Series]) -> str:
    return "".join(
        f'<span class="key"><i class="s{s.colour % COLOURS}"></i>{escape(s.label)}</span>'
        for s in series
    )
