"""Progress as plain lines, for logs, pipes and the reference executor."""

import time
from collections.abc import Callable

import click

from flowgraph.cli.progress.tracker import Tracker, by_group
from flowgraph.report.headline import budgets, duration, main_figures, number
from flowgraph.runtime.progress import (
    EvaluationFinished,
    PassedOver,
    Progress,
    PutAside,
    Restarted,
    RunStarted,
    StepFinished,
)

STEPS_APART = 10
SECONDS_APART = 2.0
AT_LEAST_EVERY_S = 15.0


class Lines:
    """Prints a line each ten steps, at most one in two seconds, at least one in fifteen."""

    def __init__(
        self, tracker: Tracker, *, to_stderr: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._tracker = tracker
        self._to_stderr = to_stderr
        self._now = now
        self._printed_at = float("-inf")
        self._printed_step = 0

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left on the screen to be taken away."""

    def observe(self, progress: Progress) -> None:
        self._tracker.observe(progress)
        match progress:
            case RunStarted():
                took = duration(self._tracker.started_after or 0.0)
                workers = len(self._tracker.workers)
                ready = f"{workers} workers" if workers != 1 else "1 process"
                again = " again" if self._tracker.restarts else f" after {took}"
                self._print(f"{ready} ready{again}; {progress.steps} steps in all")
                if progress.spill_bytes:
                    kept = budgets(progress.pool_bytes, progress.spill_bytes)
                    self._print(f"each worker may keep {kept} of its records")
            case Restarted():
                self._print(restart_line(progress))
            case PutAside():
                self._print(put_aside_line(progress))
            case PassedOver():
                self._print(passed_over_line(progress))
            case StepFinished() if self._due():
                self._printed_at, self._printed_step = self._now(), self._tracker.done
                self._print(step_line(self._tracker))
            case EvaluationFinished():
                self._print(evaluation_line(progress))

    def _due(self) -> bool:
        tracker = self._tracker
        if tracker.done in (1, tracker.total):
            return True
        waited = self._now() - self._printed_at
        apart = tracker.done - self._printed_step >= STEPS_APART and waited >= SECONDS_APART
        return apart or waited >= AT_LEAST_EVERY_S

    def _print(self, line: str) -> None:
        click.echo(line, err=self._to_stderr)


def step_line(tracker: Tracker) -> str:
    """`step 40/600  solver reward 0.312  ...  6,230 tokens/s  busy host-0 46%  eta 2 min 10 s`."""
    parts = [f"step {tracker.done}/{tracker.total}"]
    for curve in tracker.curves.values():
        parts.append(f"{curve.scope} {curve.name} {number(tracker.recent(curve))}")
    parts.append(f"{tracker.tokens_a_second:,.0f} tokens/s")
    busy = [f"{name} {share:.0%}" for name, share in by_group(tracker.busy).items()]
    if busy:
        parts.append(f"busy {' '.join(busy)}")
    left = tracker.remaining_seconds
    if left and tracker.done < tracker.total:
        parts.append(f"eta {duration(left)}")
    return "  ".join(parts)


def restart_line(restart: Restarted) -> str:
    """`restart 1 of 3, from the last checkpoint: worker lm.gang-0 was killed`; or, of who is
    replaced while all others go on, `restart 2 of 3, host-0 alone: worker host-0 was killed`.
    """
    how = f"{restart.worker} alone" if restart.worker else "from the last checkpoint"
    return f"restart {restart.restart} of {restart.of}, {how}: {restart.cause}"


def put_aside_line(aside: PutAside) -> str:
    """`sample 36 is put aside (1 of at most 5), from the last checkpoint: stage 'check': ...`."""
    return (
        f"sample {aside.sample} is put aside ({aside.count} of at most {aside.of}), going on from "
        f"the last checkpoint: stage '{aside.stage}': {aside.cause}"
    )


def passed_over_line(passed: PassedOver) -> str:
    """`checkpoint step-00000008 is damaged (lm.safetensors was changed): going on from ...`."""
    return (
        f"checkpoint {passed.checkpoint} is damaged ({passed.problem}): "
        "going on from the one before it"
    )


def evaluation_line(evaluation: EvaluationFinished) -> str:
    """`evaluation held-out, weights after step 200: exact_match 0.61  digit 0.7`."""
    figures = main_figures(evaluation.figures)
    shown = "  ".join(f"{name} {number(value)}" for name, value in figures.items())
    when = f"after step {evaluation.step}" if evaluation.step else "before the first step"
    return f"evaluation {evaluation.name}, {when}: {shown}"
