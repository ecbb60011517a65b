"""A run's progress events, made up but of the true shape."""

from collections.abc import Iterator

from flowgraph.runtime.progress import (
    EvaluationFinished,
    Progress,
    RunResult,
    RunStarted,
    StepFinished,
    WorkerStarted,
    first_and_last,
)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def step(number: int, seconds: float = 0.5) -> StepFinished:
    """Rewards that grow from 0 to 1 over 100 steps."""
    return StepFinished(
        step=number,
        seconds=seconds,
        metrics={
            "solver": {"loss": 1.0 / (number + 1), "lr": 1e-3, "reward": number / 100},
            "vit": {"grad_norm": 2.0},
            "play": {"team": 0.25},
        },
        tokens=100,
        busy={"host-0": 0.5, "solver.gang-0": 0.25},
    )


def evaluation(number: int, name: str = "held-out") -> EvaluationFinished:
    return EvaluationFinished(
        name=name, step=number, figures={"digit": 0.5, "exact_match": number / 100}
    )


def whole_run(steps: int = 100) -> Iterator[Progress]:
    yield WorkerStarted(name="host-0", stage="tasks, play", pid=11)
    yield WorkerStarted(name="solver.gang-0", stage="train-solver", pid=12)
    yield RunStarted(steps=steps)
    yield evaluation(0)
    for number in range(steps):
        yield step(number)
    yield evaluation(steps)


def result(steps: int = 100) -> RunResult:
    return RunResult(
        steps=steps,
        samples={
            "tasks/play": {"admitted": 1600, "consumed": 1600, "dropped": 0, "in_flight": 0},
            "play.solver/train": {"admitted": 1600, "consumed": 1598, "dropped": 2, "in_flight": 0},
        },
        updates={"solver": steps},
        metrics=first_and_last([step(number).metrics for number in range(steps)]),
        evaluations={"held-out": dict(evaluation(steps).figures)},
        weights_digest={"solver": "ab" * 32},
        initial_digest={"solver": "cd" * 32},
        workers=({"name": "orchestrator", "stage": "", "pid": 10},),
    )
