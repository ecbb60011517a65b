"""What went wrong in a run and what was done about it, as a section of its report."""

from collections.abc import Callable
from html import escape

from flowgraph.runtime.journal_reader import Story

MOST_ROWS = 200
"""More would be a log, which the journal is."""

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], str]


def troubles(story: Story, table: Table) -> str:
    """Restarts, samples put aside with their tracebacks, and samples dropped by reason; or ""."""
    restarts: list[tuple[str, ...]] = [(what, cause) for what, cause in story.restarts[:MOST_ROWS]]
    aside: list[tuple[str, ...]] = [
        (str(one.sample), one.stage, one.cause, one.place) for one in story.quarantined[:MOST_ROWS]
    ]
    drops: list[tuple[str, ...]] = [(reason, f"{count:,}") for reason, count in story.drops]
    parts = [
        table(("restarted", "because"), restarts),
        table(("sample put aside", "stage", "cause", "at"), aside),
        *(
            f"<details><summary>Traceback of sample {one.sample}</summary>"
            f'<div class="card"><pre>{escape(one.traceback)}</pre></div></details>'
            for one in story.quarantined[:MOST_ROWS]
        ),
        table(("samples left out by", "how many"), drops),
    ]
    return "".join(parts)


def told_troubles(story: Story) -> list[str]:
    """The same in lines for a terminal."""
    lines = [f"restarted {what}: {cause}" for what, cause in story.restarts]
    lines += [
        f"put aside sample {one.sample}: stage '{one.stage}': {one.cause}"
        for one in story.quarantined
    ]
    return lines + [f"left out by {reason}: {count:,} samples" for reason, count in story.drops]
