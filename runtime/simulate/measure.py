"""From a run's messages to the times of its work and the lengths of its data.

Workers say with each answer how long they were busy with it; what was in it is in the messages.
Where the processes' CPU time is given, busy seconds are scaled to it: on crowded cores a worker is
busy for longer than it works.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flowgraph.ir.binary import decode as decode_plan
from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.journal_reader import read_messages
from flowgraph.runtime.messages import Message
from flowgraph.runtime.policy.step_time import (
    EVENT_SECONDS,
    EngineTimes,
    HostTimes,
    StepTimes,
    TaskTimes,
    estimated,
)
from flowgraph.runtime.simulate.fit import fit_parts
from flowgraph.runtime.simulate.observed import Observed, observe
from flowgraph.runtime.simulate.workload import Lengths

Logged = tuple[float, bool, str, Message]
"""(seconds, sent by the orchestrator, worker, message)."""

QUANTILES = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took, and what its data was like."""

    times: StepTimes
    lengths: Lengths


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds between the run's first and last step, by worker, and of the orchestrator."""

    workers: Mapping[str, float] = field(default_factory=dict)
    orchestrator: float = 0.0


def read_run(folder: Path) -> tuple[Plan, Iterator[Logged]]:
    """A run directory's plan and messages. Raises ConfigurationError when it is none."""
    plan_file = folder / "plan.fgplan"
    try:
        plan = decode_plan(plan_file.read_bytes(), str(plan_file))
    except OSError as error:
        raise ConfigurationError(
            f"{folder} is no run directory: {error.strerror}",
            hint="a folder that `flowgraph run` made",
        ) from error
    return plan, read_messages(folder)


def measure(plan: Plan, messages: Iterable[Logged], cpu: CpuTime | None = None) -> Measured:
    """What the run took. What it never did keeps its estimate."""
    seen = observe(plan, messages)
    scale = _scales(plan, seen, cpu)
    base = estimated(plan)
    event_s = EVENT_SECONDS
    if cpu is not None and cpu.orchestrator and seen.messages:
        event_s = cpu.orchestrator / seen.messages
    times = StepTimes(
        hosts={task: _host(seen, task, scale, t) for task, t in base.hosts.items()},
        engines={g: _engine(seen, g, scale.get(g, 1.0), t) for g, t in base.engines.items()},
        tasks={
            task: _task(seen, task, scale.get(plan.task(task).group, 1.0), t)
            for task, t in base.tasks.items()
        },
        updates={
            module: _mean(seen.updates.get(module, [])) * scale.get(f"{module}.gang", 1.0)
            for module in base.updates
        },
        saves={
            module: _mean(seen.saves.get(module, [])) * scale.get(f"{module}.gang", 1.0)
            for module in base.saves
        },
        event_s=event_s,
        measured=True,
        saves_measured=True,
    )
    return Measured(times, _lengths(seen))


def _scales(plan: Plan, seen: Observed, cpu: CpuTime | None) -> dict[str, float]:
    """By group: CPU seconds for each second that its workers called busy."""
    if cpu is None:
        return {}
    found = {}
    for group in plan.groups:
        names = [f"{group.name}-{index}" for index in range(group.replicas)]
        busy = sum(seen.busy.get(name, 0.0) for name in names)
        if busy > 0.0:
            found[group.name] = sum(cpu.workers.get(name, 0.0) for name in names) / busy
    return found


def _host(seen: Observed, task: str, scale: Mapping[str, float], base: HostTimes) -> HostTimes:
    rows = seen.hosts.get(task)
    if not rows:
        return base
    item_s, sample_s, call_s = fit_parts([row[0] for row in rows], [row[1] for row in rows])
    factor = scale.get("host", 1.0)
    return HostTimes(item_s=item_s * factor, sample_s=sample_s * factor, call_s=call_s * factor)


def _engine(seen: Observed, group: str, factor: float, base: EngineTimes) -> EngineTimes:
    rows = seen.engines.get(group)
    if not rows:
        return base
    parts = fit_parts([row[0] for row in rows], [row[1] for row in rows])
    prefill_s, token_s, iteration_s, row_s = (part * factor for part in parts)
    return EngineTimes(
        prefill_s=prefill_s,
        prefill_token_s=token_s,
        iteration_s=iteration_s,
        row_s=row_s,
        load_s=_mean(seen.loads.get(group, [])) * factor,
    )


def _task(seen: Observed, task: str, factor: float, base: TaskTimes) -> TaskTimes:
    forward = seen.tasks.get((task, False), [])
    if not forward:
        return base
    item_s, weight_s = fit_parts([r[0] for r in forward], [r[1] for r in forward])
    times = TaskTimes(item_s=item_s * factor, weight_s=weight_s * factor, evaluate=base.evaluate)
    if backward := seen.backwards.get(task):
        item_s, weight_s = fit_parts([r[0] for r in backward], [r[1] for r in backward])
        times = replace(times, backward_item_s=item_s * factor, backward_weight_s=weight_s * factor)
    if evaluated := seen.tasks.get((task, True)):
        full = sum(times.forward(row[0][1], 0) for row in evaluated)
        share = sum(row[1] for row in evaluated) * factor / full if full else base.evaluate
        times = replace(times, evaluate=share)
    return times


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _lengths(seen: Observed) -> Lengths:
    return Lengths(
        prompts={agent: _quantiles(values) for agent, values in seen.prompts.items()},
        responses={agent: _quantiles(values) for agent, values in seen.responses.items()},
        calls=_calls(seen),
        tokens={stream: _quantiles(values) for stream, values in seen.tokens.items()},
        rates=dict(seen.rates()),
    )


def _calls(seen: Observed) -> dict[str, tuple[float, ...]]:
    """Calls a trajectory, of which only the mean is seen: that share has one call more."""
    found = {}
    for agent, (calls, trajectories) in seen.calls.items():
        mean = calls / max(1, trajectories)
        more = round((mean - int(mean)) * QUANTILES)
        found[agent] = (float(int(mean)),) * (QUANTILES - more) + (int(mean) + 1.0,) * more
    return found


def _quantiles(values: list[float]) -> tuple[float, ...]:
    """The middles of equal shares of the values, such that mean and tail stay."""
    ordered = sorted(values)
    count = min(QUANTILES, len(ordered))
    return tuple(ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count))
