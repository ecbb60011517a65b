"""A schedule is a number: from it follow the plan, everybody's speed, and what goes wrong.

`python -m tests.runtime.simulate --replay NUMBER` runs one again.
"""

import random
from dataclasses import dataclass

from flowgraph.ir.plan import Plan
from flowgraph.runtime.policy.step_time import EngineTimes, HostTimes, StepTimes, TaskTimes
from flowgraph.runtime.simulate import Fault, Faults, SimResult, simulate
from flowgraph.runtime.simulate.ledger import digest_of, reference_entries
from flowgraph.runtime.simulate.workload import Workload
from flowgraph.runtime.topology import Topology
from tests.runtime.simulate.laws import check_state
from tests.runtime.simulate.plans import PLANS, plan_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """All that a simulation depends on."""

    number: int
    plan: Plan
    steps: int
    exact: bool
    times: StepTimes
    faults: Faults
    source_size: int
    checkpoint_every: int


def schedule_of(number: int) -> Schedule:
    """Schedule `number`, always the same."""
    draw = random.Random(f"schedule {number}")
    plan = plan_of(draw.randrange(PLANS))
    workers = [f"{g.name}-{i}" for g in plan.groups for i in range(g.replicas)]
    faults = [
        Fault(kind="delay", seconds=10 ** draw.uniform(-4, 0)) for _ in range(draw.randint(0, 1))
    ]
    for _ in range(draw.randint(0, 2)):
        faults.append(_trouble(draw, draw.choice(workers)))
    if draw.random() < 0.3:
        faults.append(Fault(kind="duplicate", seconds=10 ** draw.uniform(-3, 0)))
    for _ in range(draw.choice([0, 0, 1, 3])):
        crash = Fault(
            kind="crash", worker=draw.choice(workers), start_s=10 ** draw.uniform(-3, 0.5)
        )
        faults.append(crash)
    return Schedule(
        number=number,
        plan=plan,
        steps=draw.randint(1, 3),
        exact=draw.random() < 0.5,
        times=_times(draw, plan),
        faults=Faults(tuple(faults), seed=number),
        source_size=draw.choice([-1, -1, draw.randint(1, 30)]),
        checkpoint_every=draw.randint(1, 2),
    )


def _trouble(draw: random.Random, worker: str) -> Fault:
    """One worker that is slow, far away, or cut off for a while."""
    start = 10 ** draw.uniform(-3, 0)
    kind = draw.randrange(3)
    if kind == 0:
        return Fault(kind="slow", worker=worker, factor=10 ** draw.uniform(0, 3))
    if kind == 1:
        return Fault(kind="delay", worker=worker, seconds=10 ** draw.uniform(-3, 1))
    return Fault(kind="partition", worker=worker, start_s=start, end_s=start * draw.uniform(1, 9))


def _times(draw: random.Random, plan: Plan) -> StepTimes:
    """Every part's speed over orders of magnitude, so that any of them may be the slowest."""

    def some() -> float:
        return 10 ** draw.uniform(-5, -1.5)

    return StepTimes(
        hosts={
            t.name: HostTimes(item_s=some(), sample_s=some(), call_s=some()) for t in plan.tasks
        },
        engines={
            g.name: EngineTimes(prefill_s=some(), iteration_s=some(), row_s=some(), load_s=some())
            for g in plan.groups
        },
        tasks={
            t.name: TaskTimes(item_s=some(), weight_s=some() / 10, backward_item_s=some())
            for t in plan.tasks
        },
        updates={module.name: some() for module in plan.graph.modules},
        event_s=draw.choice([0.0, 1e-5, 1e-3]),
        wire_s=draw.choice([0.0, 1e-4]),
    )


def run_schedule(schedule: Schedule) -> SimResult:
    """Raises AssertionError, or InternalError of the core's, where a law is broken."""
    result = simulate(
        schedule.plan,
        steps=schedule.steps,
        seed=schedule.number,
        faults=schedule.faults,
        times=schedule.times,
        exact=schedule.exact,
        source_size=schedule.source_size,
        checkpoint_every=schedule.checkpoint_every,
        start_s=0.01,
        watch=check_state,
    )
    assert result.outcome == "finished", f"{result.outcome}: {result.cause}"
    _check_end(schedule, result)
    return result


def _check_end(schedule: Schedule, result: SimResult) -> None:
    plan = schedule.plan
    workload = Workload(plan, schedule.number)
    expected = reference_entries(
        plan,
        steps=schedule.steps,
        exact=schedule.exact,
        keeps=workload.keeps,
        source_size=schedule.source_size,
    )
    assert result.trained == digest_of(expected, exact=schedule.exact), "another training"
    kept = result.conservation
    for name, record in kept["samples"].items():
        assert record["in_flight"] == 0, f"{name}: {record}"
    calls = kept["calls"]
    assert calls["issued"] == calls["answered"] + calls["dropped"]
    steps = 1 + max((entry[1] for entry in expected), default=-1)
    assert result.steps == steps
    assert set(kept["updates"].values()) == {steps * plan.schedule.updates}
    assert kept["gradients"] == {"added": len(expected), "unused": 0}
    if not Topology(plan).has_filters():
        assert kept["blocks"]["in_flight"] == 0, f"blocks were left: {kept['blocks']}"
