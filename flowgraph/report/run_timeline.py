"""The last moments of a real run as a timeline, from its journal: who worked on what when.

A worker says with each answer how long it was busy with it; that is drawn up to the moment at which
the answer came, never over what the worker did before.
"""

from pathlib import Path

from flowgraph.ir.plan import Plan
from flowgraph.runtime.journal_reader import last_messages
from flowgraph.runtime.messages import (
    BackwardDone,
    Done,
    Generated,
    Loaded,
    Message,
    Run,
    Saved,
    Updated,
)
from flowgraph.runtime.simulate.timeline import Mark, Span, Timeline

MOST_MESSAGES = 4000
"""Enough for some steps of a few workers; a page must open at once."""

KINDS = {
    BackwardDone: "backward",
    Generated: "rollout",
    Loaded: "load",
    Saved: "save",
    Updated: "update",
}


def run_timeline(plan: Plan, folder: Path) -> Timeline:
    """Of the last attempt; without spans when the run has no journal, or did not come so far."""
    workers = {f"{g.name}-{i}": g.name for g in plan.groups for i in range(g.replicas)}
    timeline = Timeline(workers)
    runs: dict[int, Run] = {}
    ends: dict[str, float] = {}
    names = ("Run", *(kind.__name__ for kind in (Done, *KINDS)))
    for at, worker, message in last_messages(folder, names, MOST_MESSAGES):
        if isinstance(message, Run):
            runs[message.item] = message
            continue
        busy = float(getattr(message, "busy_s", 0.0))
        found = _kind(plan, message, runs)
        if found is None or busy <= 0.0 or worker not in workers:
            continue
        kind, what, step = found
        start = max(at - busy, ends.get(worker, 0.0))
        ends[worker] = at
        timeline.spans.append(
            Span(worker=worker, kind=kind, start=start, end=at, work=busy, step=step, what=what)
        )
        if isinstance(message, Updated):
            timeline.marks.append(Mark(time=at, what=f"version {message.version}"))
    return timeline


def _kind(plan: Plan, message: Message, runs: dict[int, Run]) -> tuple[str, str, int] | None:
    """(kind of span, task, step); None for an answer whose question is not among the messages."""
    if not isinstance(message, Done):
        return KINDS[type(message)], "", -1
    run = runs.pop(message.item, None)
    if run is None:
        return None
    kind = "evaluate" if run.variant else plan.task(run.task).kind
    return kind, run.task, run.step
