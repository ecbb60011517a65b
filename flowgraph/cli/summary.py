"""What a run ends with on the screen: what was learned, what became of each sample."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flowgraph.cli.progress.tracker import Tracker
from flowgraph.report.headline import duration, main_figures, number
from flowgraph.runtime.progress import EvaluationFinished, RunResult


def print_summary(
    console: Console, tracker: Tracker, result: RunResult, *, name: str, wall_s: float
) -> None:
    """Tables and a few lines; nothing that the run directory does not hold as well."""
    steps = "1 step" if result.steps == 1 else f"{result.steps} steps"
    head = Text.assemble((name, "bold"), " finished: ", (steps, "green"), f" in {duration(wall_s)}")
    console.print(head)
    if result.metrics:
        console.print(_learned(result))
    if tracker.evaluations:
        console.print(_evaluated(tracker))
    for line in conservation(result.samples):
        console.print(line)
    if result.quarantined:
        which = ", ".join(str(aside.sample) for aside in tracker.put_aside)
        console.print(f"put aside: {result.quarantined} samples" + (f" ({which})" * bool(which)))


def _learned(result: RunResult) -> Table:
    table = Table("module", "figure", box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("first tenth", justify="right")
    table.add_column("last tenth", justify="right")
    for scope, named in result.metrics.items():
        for figure, ends in main_figures(named).items():
            first, last = (_number(ends.get(end)) for end in ("first", "last"))
            table.add_row(scope, figure, first, Text(last, "bold"))
    return table


def _evaluated(tracker: Tracker) -> Table:
    table = Table("evaluation", "figure", box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("first", justify="right")
    table.add_column("last", justify="right")
    for name, last in tracker.evaluations.items():
        first = tracker.first_evaluations[name]
        for figure, value in main_figures(last.figures).items():
            before = "" if first is last else _number(first.figures.get(figure))
            table.add_row(_titled(last), figure, before, Text(number(value), "bold"))
    return table


def _titled(evaluation: EvaluationFinished) -> str:
    return f"{evaluation.name} (after step {evaluation.step})"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def conservation(samples: Mapping[str, Mapping[str, int]]) -> list[str]:
    """One line for streams with the same counts: admitted = consumed + dropped + in flight."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for stream, counts in samples.items():
        found = tuple(counts[k] for k in ("admitted", "consumed", "dropped", "in_flight"))
        alike.setdefault(found, []).append(stream)
    return [
        f"samples: {admitted:,} admitted = {consumed:,} consumed + {dropped:,} dropped + "
        f"{in_flight:,} in flight, on {_streams(streams)}"
        for (admitted, consumed, dropped, in_flight), streams in alike.items()
    ]


def _streams(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {len(names)} streams"
