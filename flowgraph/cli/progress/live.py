"""Progress on a terminal: a bar with its end in sight, curves, rates and busy shares, live."""

from itertools import pairwise

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flowgraph.cli.progress.lines import passed_over_line, put_aside_line, restart_line
from flowgraph.cli.progress.tracker import Curve, Tracker, by_group
from flowgraph.report.headline import duration, main_figures, number
from flowgraph.runtime.progress import EvaluationFinished, Progress

REFRESH_HZ = 4
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 32
BUSY_WIDTH = 10


class LiveDisplay:
    """Draws the tracker a few times a second while the run goes on; leaves nothing behind."""

    def __init__(self, tracker: Tracker, console: Console, *, name: str, workers: int) -> None:
        self._tracker = tracker
        self._name = name
        self._workers = workers
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=REFRESH_HZ,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "LiveDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def observe(self, progress: Progress) -> None:
        self._tracker.observe(progress)

    def _draw(self) -> RenderableType:
        tracker = self._tracker
        if tracker.started_after is None:
            ready = f"{len(tracker.workers)} of {self._workers} workers ready"
            return Text.assemble((self._name, "bold"), "  starting: ", (ready, "cyan"))
        return draw(tracker, self._name)


def draw(tracker: Tracker, name: str) -> RenderableType:
    """The whole display as one renderable."""
    parts: list[RenderableType] = [_bar(tracker, name)]
    if tracker.curves:
        parts += [Text(), _curves(tracker)]
    if tracker.busy:
        parts += [Text(), _busy(tracker)]
    if tracker.evaluations:
        parts += [Text(), _evaluations(tracker)]
    if tracker.restarts:
        parts += [Text(), Text(restart_line(tracker.restarts[-1]), "yellow")]
    if tracker.put_aside:
        parts += [Text(), Text(put_aside_line(tracker.put_aside[-1]), "yellow")]
    if tracker.passed_over:
        parts += [Text(), Text(passed_over_line(tracker.passed_over[-1]), "yellow")]
    return Group(*parts)


def _bar(tracker: Tracker, name: str) -> Table:
    row = Table.grid(padding=(0, 2), expand=True)
    for ratio in (None, 1, None, None, None, None):  # the bar takes what the others leave
        row.add_column(ratio=ratio, no_wrap=True)
    left = tracker.remaining_seconds
    took = tracker.step_seconds
    row.add_row(
        Text(name, "bold"),
        ProgressBar(total=max(1, tracker.total), completed=tracker.done),
        Text(f"{tracker.done}/{tracker.total} steps"),
        Text(f"{took:.2f} s a step" if took else "first step", "cyan"),
        Text(f"{tracker.tokens_a_second:,.0f} tokens/s", "cyan"),
        Text("" if left is None else f"{duration(left)} left", "green"),
    )
    return row


def _curves(tracker: Tracker) -> Table:
    table = Table.grid(padding=(0, 2))
    for curve in tracker.curves.values():
        table.add_row(
            Text(curve.scope, "bold"),
            Text(curve.name),
            Text(number(tracker.recent(curve)), "green", justify="right"),
            Text(sparkline(curve), "cyan"),
        )
    return table


def sparkline(curve: Curve, width: int = SPARK_WIDTH) -> str:
    """The whole curve so far in `width` characters, each the mean of its share of the steps."""
    values = [value for value in curve.values if value == value]
    count = min(width, len(values))
    if count == 0:
        return ""
    edges = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(SPARKS[round((mean - low) / span * (len(SPARKS) - 1))] for mean in means)


def _busy(tracker: Tracker) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, share in by_group(tracker.busy).items():
        full = round(share * BUSY_WIDTH)
        bar = Text("█" * full, "magenta") + Text("░" * (BUSY_WIDTH - full), "dim")
        table.add_row(Text(name), bar, Text(f"{share:.0%} busy", justify="right"))
    return table


def _evaluations(tracker: Tracker) -> Table:
    table = Table.grid(padding=(0, 2))
    for evaluation in tracker.evaluations.values():
        table.add_row(Text(evaluation.name, "bold"), _figures(evaluation))
    return table


def _figures(evaluation: EvaluationFinished) -> Text:
    shown = main_figures(evaluation.figures)
    text = "  ".join(f"{name} {number(value)}" for name, value in shown.items())
    return Text.assemble(text, (f"  (after step {evaluation.step})", "dim"))
