"""What a run tells about itself while it goes on, and when it has ended: plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStarted:
    """A process of the run. stage: the stages (or module) it serves."""

    name: str
    stage: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PorterStarted:
    """A node's porter listens, from which other nodes' workers get its blocks."""

    node: str
    pid: int
    endpoint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """All workers are ready; steps: how many will be taken.

    pool_bytes, spill_bytes: of records that each worker may keep in memory, and on disk; 0: not
    said, or none.
    """

    steps: int
    pool_bytes: int = 0
    spill_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """metrics: by module (or episodes stage), by name: means over the step.

    tokens: trained tokens of the step. busy: share of the step's time, by worker.
    """

    step: int
    seconds: float
    metrics: Mapping[str, Mapping[str, float]]
    tokens: int
    busy: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFinished:
    """figures: by name, of the weights before step `step`."""

    name: str
    step: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """A worker was lost and is replaced. cause: a sentence.

    worker: who is replaced alone; empty when the run goes back to its last checkpoint.
    """

    cause: str
    restart: int
    of: int
    worker: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAside:
    """A sample's work raised each time it was tried; the run goes on from the last checkpoint
    without it. count: samples put aside so far, of at most `of`.
    """

    sample: int
    stage: str
    cause: str
    count: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """The newest checkpoint is not what was written; the run goes on from the one before it.

    checkpoint: its folder's name. problem: what is wrong with which of its files.
    """

    checkpoint: str
    problem: str


Progress = (
    WorkerStarted
    | PorterStarted
    | RunStarted
    | StepFinished
    | EvaluationFinished
    | Restarted
    | PutAside
    | PassedOver
)
Observer = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a run: the object that `--json` prints, less what the command line adds.

    samples: `stream/consumer` → admitted, consumed, dropped, in_flight (counted in samples).
    metrics: by module, by name: means over the first and the last tenth of the steps.
    evaluations: figures of the last evaluation, by its name. history: every step's metrics.
    quarantined: samples that were put aside, since their work raised each time.
    """

    steps: int
    samples: Mapping[str, Mapping[str, int]]
    updates: Mapping[str, int]
    metrics: Mapping[str, Mapping[str, Mapping[str, float]]]
    evaluations: Mapping[str, Mapping[str, float]]
    weights_digest: Mapping[str, str]
    initial_digest: Mapping[str, str]
    workers: tuple[Mapping[str, Any], ...] = field(default=())
    quarantined: int = 0


def first_and_last(
    history: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, dict[str, dict[str, float]]]:
    """Means over the first and the last tenth of the steps (at least one), by scope and name."""
    tenth = max(1, len(history) // 10)
    ends = {"first": history[:tenth], "last": history[-tenth:]} if history else {}
    result: dict[str, dict[str, dict[str, float]]] = {}
    for end, steps in ends.items():
        values: dict[tuple[str, str], list[float]] = {}
        for step in steps:
            for scope, named in step.items():
                for name, value in named.items():
                    values.setdefault((scope, name), []).append(value)
        for (scope, name), seen in values.items():
            result.setdefault(scope, {}).setdefault(name, {})[end] = sum(seen) / len(seen)
    return result
