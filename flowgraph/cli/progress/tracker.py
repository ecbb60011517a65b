"""A run's state as its progress events tell it: what both displays show."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flowgraph.report.headline import headline
from flowgraph.runtime.progress import (
    EvaluationFinished,
    PassedOver,
    Progress,
    PutAside,
    Restarted,
    RunStarted,
    StepFinished,
    WorkerStarted,
)

WINDOW = 20
"""Steps over which rates and shares are taken: long enough to be steady, short enough to follow."""

MOST_WORKERS = 12
"""Workers that a display lists one by one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure's values, step by step."""

    scope: str
    name: str
    values: list[float]


class Tracker:
    """Takes every event of a run; `now` is a clock in seconds that only goes forward."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self.began = now()
        self.started_after: float | None = None
        self.workers: list[WorkerStarted] = []
        self.restarts: list[Restarted] = []
        self.put_aside: list[PutAside] = []
        self.passed_over: list[PassedOver] = []
        self.total = 0
        self.done = 0
        self.curves: dict[str, Curve] = {}
        self.first_evaluations: dict[str, EvaluationFinished] = {}
        self.evaluations: dict[str, EvaluationFinished] = {}
        self._recent: deque[tuple[float, StepFinished]] = deque(maxlen=WINDOW)
        self._mark = self.began

    def observe(self, progress: Progress) -> None:
        match progress:
            case WorkerStarted():
                self.workers.append(progress)
            case RunStarted():
                self.total = progress.steps
                self._mark = self._now()
                if self.started_after is None:
                    self.started_after = self._mark - self.began
            case Restarted():
                alone = progress.worker  # else all are started anew
                self.workers = [w for w in self.workers if alone and w.name != alone]
                self.restarts.append(progress)
            case PutAside():
                self.workers = []
                self.put_aside.append(progress)
            case PassedOver():
                self.passed_over.append(progress)
            case StepFinished():
                self._step(progress)
            case EvaluationFinished():
                self.first_evaluations.setdefault(progress.name, progress)
                self.evaluations[progress.name] = progress
                if not self.done:
                    self._mark = self._now()  # the first step has not begun yet

    def _step(self, step: StepFinished) -> None:
        now = self._now()
        self._recent.append((now - self._mark, step))
        self._mark = now
        self.done = step.step + 1
        for scope, named in step.metrics.items():
            name = headline(named)
            if name is not None:
                curve = self.curves.setdefault(scope, Curve(scope, name, []))
                curve.values.append(named.get(curve.name, float("nan")))

    @property
    def step_seconds(self) -> float:
        """Of a recent step, evaluations between steps included; 0 before the first step."""
        return sum(wall for wall, _ in self._recent) / max(1, len(self._recent))

    @property
    def remaining_seconds(self) -> float | None:
        """Expected time to the last step; None before the first."""
        return self.step_seconds * (self.total - self.done) if self._recent else None

    @property
    def tokens_a_second(self) -> float:
        """Trained tokens of recent steps, over the steps' own time."""
        seconds = sum(step.seconds for _, step in self._recent)
        return sum(step.tokens for _, step in self._recent) / seconds if seconds else 0.0

    @property
    def busy(self) -> Mapping[str, float]:
        """Each worker's busy share over recent steps, in 0..1."""
        total: dict[str, float] = {}
        for _, step in self._recent:
            for name, share in step.busy.items():
                total[name] = total.get(name, 0.0) + share * step.seconds
        seconds = sum(step.seconds for _, step in self._recent)
        return {name: held / seconds for name, held in total.items()} if seconds else {}

    def recent(self, curve: Curve) -> float:
        """The figure's mean over recent steps that have it."""
        values = [value for value in curve.values[-WINDOW:] if value == value]
        return sum(values) / len(values) if values else float("nan")


def by_group(busy: Mapping[str, float]) -> dict[str, float]:
    """Each worker's share, or each group's mean once there are more than fit a screen."""
    if len(busy) <= MOST_WORKERS:
        return dict(busy)
    groups: dict[str, list[float]] = {}
    for name, share in busy.items():
        groups.setdefault(name.rpartition("-")[0], []).append(share)
    return {f"{name} ({len(all_)})": sum(all_) / len(all_) for name, all_ in groups.items()}
