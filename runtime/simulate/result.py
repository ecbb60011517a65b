"""What a simulation found, in figures: plain data beside the timeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowgraph.runtime.policy.step_time import bound_seconds
from flowgraph.runtime.progress import RunStarted, StepFinished
from flowgraph.runtime.simulate.attempts import Attempts
from flowgraph.runtime.simulate.engine import SimEngine
from flowgraph.runtime.simulate.timeline import Span, Timeline, length_outside
from flowgraph.runtime.simulate.world import World

TRAINING = ("apply", "train", "backward", "update")
ROLLOUT = ("rollout", "host")
COUNTS = ("admitted", "consumed", "dropped", "in_flight")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """outcome: `finished`, `failed` (why is in `cause`), or `stalled` (who waits is in `cause`).

    seconds: of the whole run in virtual time, from all workers being ready. step_s: p10, p50, p90
    of a training step. evaluation_s: of all evaluations together, 0 for a graph without one.
    checkpoint_s: what writing one takes; measured ones are within the steps, estimates beside them.
    bound_s: the least that a step's work can take, with nothing waiting.
    exposed_training_s: of a step's seconds, those in which trainers work and no rollout does.
    utilisation: by `modules` (busy share of its engines and ranks) and `devices` (by kind).
    stalls: seconds of a training step that a worker waits, by cause, by group (a mean over its
    workers); `shared cores` is what its work took longer for others' sake.
    queue: the most there ever was at once, in `streams` (records, bytes), `pools` (bytes of the
    fullest), `engines` (calls without a slot), `orchestrator` (messages).
    conservation: samples by `stream/consumer`, blocks, calls, gradients: what came and what went;
    optimizer updates by module.
    trained: digest over what was trained and in what order it was added. steps_s: of each step.
    """

    outcome: str
    cause: str = ""
    restarts: int = 0
    steps: int
    seconds: float
    step_s: Mapping[str, float]
    evaluation_s: float
    checkpoint_s: float
    bound_s: float
    exposed_training_s: float
    utilisation: Mapping[str, Mapping[str, float]]
    stalls: Mapping[str, Mapping[str, float]]
    queue: Mapping[str, Any]
    conservation: Mapping[str, Any]
    trained: str
    events: int
    measured: bool
    steps_s: tuple[float, ...]
    timeline: Timeline = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """As `--json` prints it: everything but the timeline."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "timeline"}


def result_of(attempts: Attempts) -> SimResult:
    """The figures of a simulated run that has ended, whichever way."""
    world = attempts.last
    finished = [p for _, p in attempts.progress if isinstance(p, StepFinished)]
    began = next((t for t, p in attempts.progress if isinstance(p, RunStarted)), 0.0)
    elapsed = max(world.clock.now - began, 1e-12)
    seconds = [step.seconds for step in finished]
    count = max(1, len(finished))
    outcome, cause = _outcome(world)
    evaluates = world.state.topology.variants()
    return SimResult(
        outcome=outcome,
        cause=cause,
        restarts=attempts.restarts,
        steps=len(finished),
        seconds=elapsed,
        step_s={f"p{p}": quantile(seconds, p / 100) for p in (10, 50, 90)},
        evaluation_s=max(0.0, elapsed - sum(seconds)) if finished and evaluates else 0.0,
        checkpoint_s=max(world.times.saves.values(), default=0.0),
        bound_s=_bound(attempts, count),
        exposed_training_s=exposed_training(attempts.timeline.spans) / count,
        utilisation={
            "modules": _modules(attempts, elapsed),
            "devices": _devices(attempts, elapsed),
        },
        stalls=_stalls(attempts, count),
        queue=_queues(world),
        conservation=_conservation(world),
        trained=world.ledger.digest(),
        events=sum(one.events for one in attempts.worlds),
        measured=world.times.measured,
        steps_s=tuple(seconds),
        timeline=attempts.timeline,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the neighbours; 0 for no values.

    >>> quantile([1.0, 2.0, 3.0], 0.75)
    2.5
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def exposed_training(spans: Sequence[Span]) -> float:
    """Seconds in which a trainer works while nothing is rolled out or prepared."""
    return length_outside(
        [(span.start, span.end) for span in spans if span.kind in TRAINING],
        [(span.start, span.end) for span in spans if span.kind in ROLLOUT],
    )


def _outcome(world: World) -> tuple[str, str]:
    if world.result is not None:
        return "finished", ""
    if world.abort is not None:
        return "failed", world.abort.what
    waiting = [actor.stuck() for actor in world.actors.values() if not actor.dead]
    return "stalled", "; ".join(waiting)


def _bound(attempts: Attempts, count: int) -> float:
    """Each group's work a step and process, in the closed form that the passes use."""
    plan = attempts.last.plan
    work = dict.fromkeys((group.name for group in plan.groups), 0.0)
    for world in attempts.worlds:
        for actor in world.actors.values():
            group = actor.worker.group
            work[group.name] += actor.trained / group.replicas / count
    return bound_seconds(work, plan.groups, plan.cluster)


def _modules(attempts: Attempts, elapsed: float) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for worker, actor in attempts.last.actors.items():
        name = actor.worker.group.module or actor.worker.group.name
        worked = sum(world.actors[worker].worked for world in attempts.worlds)
        shares.setdefault(name, []).append(worked / elapsed)
    return {name: sum(own) / len(own) for name, own in shares.items()}


def _devices(attempts: Attempts, elapsed: float) -> dict[str, float]:
    """By device kind, over all devices of the cluster; `host` are the cores beside accelerators."""
    cluster = attempts.last.plan.cluster
    worked: dict[str, float] = {}
    capacity: dict[str, float] = {}
    for node in cluster.nodes:
        accelerated = cluster.kind(node.device).kind != "cpu"
        for (name, device), cores in attempts.last.cores.items():
            if name == node.name:
                kind = "host" if accelerated and device < 0 else node.device
                done = sum(world.cores[(name, device)].worked for world in attempts.worlds)
                worked[kind] = worked.get(kind, 0.0) + done
                capacity[kind] = capacity.get(kind, 0.0) + cores.capacity
    return {kind: worked[kind] / (capacity[kind] * elapsed) for kind in worked}


def _stalls(attempts: Attempts, count: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for world in attempts.worlds:
        for actor in world.actors.values():
            actor.account()
            group = actor.worker.group
            for cause, seconds in actor.waits.items():
                own = found.setdefault(cause, {})
                own[group.name] = own.get(group.name, 0.0) + seconds / group.replicas / count
    return {cause: found[cause] for cause in sorted(found)}


def _queues(world: World) -> dict[str, Any]:
    pools: dict[str, int] = {}
    engines: dict[str, int] = {}
    for actor in world.actors.values():
        group = actor.worker.group.name
        if actor.token in world.blocks.pools:
            pools[group] = max(pools.get(group, 0), world.blocks.pools[actor.token].most_bytes)
        if isinstance(actor, SimEngine):
            engines[group] = max(engines.get(group, 0), actor.most_waiting)
    return {
        "streams": {
            name: {"records": level.most_records, "bytes": level.most_bytes}
            for name, level in sorted(world.blocks.streams.items())
        },
        "pools": pools,
        "engines": engines,
        "orchestrator": world.most_inbox,
    }


def _conservation(world: World) -> dict[str, Any]:
    samples: dict[str, dict[str, int]] = {}
    for records in (world.state.records, *(step.records for step in world.state.steps)):
        for key, record in sorted(records.items()):
            total = samples.setdefault("/".join(key), dict.fromkeys(COUNTS, 0))
            for name in COUNTS:
                total[name] += getattr(record, name)
    return {
        "samples": samples,
        "blocks": {
            "written": world.blocks.written,
            "freed": world.blocks.freed,
            "in_flight": len(world.blocks.live),
        },
        "calls": {
            "issued": world.state.call_record.admitted,
            "answered": world.state.call_record.consumed,
            "dropped": world.state.call_record.dropped,
        },
        "updates": dict(world.state.updates),
        "gradients": {"added": len(world.ledger.entries), "unused": world.ledger.unused},
    }
