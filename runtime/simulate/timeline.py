"""Who did what when, in virtual time; as a Chrome trace, which Perfetto and others open."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One piece of work. kind: `host`, `rollout`, `load`, `apply`, `train`, `backward`, `update`,
    `evaluate`, `save`, `events`. work: seconds of a core or device in it; the rest was sharing one.
    """

    worker: str
    kind: str
    start: float
    end: float
    work: float
    step: int = -1
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at one instant: the end of a step, an evaluation, a fault."""

    time: float
    what: str


@dataclass(slots=True)
class Timeline:
    """workers: their groups, in the order of the plan. counts: (time, name, value) of queues."""

    workers: Mapping[str, str]
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    counts: list[tuple[float, str, int]] = field(default_factory=list)


def chrome_trace(timeline: Timeline, name: str) -> dict[str, Any]:
    """The timeline in the Trace Event Format: a process a group, a thread a worker.

    Times are microseconds. Events are sorted by time, as some readers ask.
    """
    groups = list(dict.fromkeys(timeline.workers.values()))
    where = {
        worker: (groups.index(group) + 1, number)
        for number, (worker, group) in enumerate(timeline.workers.items(), start=1)
    }
    named: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": group}}
        for pid, group in enumerate(groups, start=1)
    ]
    named += [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": worker}}
        for worker, (pid, tid) in where.items()
    ]
    events = [_complete(span, *where[span.worker]) for span in timeline.spans]
    events += [
        {"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": _micro(mark.time), "name": mark.what}
        for mark in timeline.marks
    ]
    events += [
        {"ph": "C", "pid": 0, "ts": _micro(time), "name": what, "args": {"value": value}}
        for time, what, value in timeline.counts
    ]
    events.sort(key=lambda event: event["ts"])
    return {
        "traceEvents": [*named, *events],
        "displayTimeUnit": "ms",
        "otherData": {"plan": name, "time": "simulated"},
    }


def _complete(span: Span, pid: int, tid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": _micro(span.start),
        "dur": _micro(span.end - span.start),
        "name": span.what or span.kind,
        "cat": span.kind,
        "args": {"step": span.step, "work_us": _micro(span.work)},
    }


def _micro(seconds: float) -> float:
    return round(seconds * MICROSECONDS, 3)


def covered(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals, as disjoint ones in order."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length_outside(
    inner: Iterable[tuple[float, float]], outer: Iterable[tuple[float, float]]
) -> float:
    """Seconds that the first intervals cover and the second do not."""
    first, second = covered(inner), covered(outer)
    total = sum(end - start for start, end in first)
    at = 0
    for start, end in first:
        while at < len(second) and second[at][1] <= start:
            at += 1
        for other_start, other_end in second[at:]:
            if other_start >= end:
                break
            total -= min(end, other_end) - max(start, other_start)
    return total
