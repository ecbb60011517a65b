"""Whether tasks with bounded room ever wait for one another: the bounded graph, run once.

Each task takes portions of a step in order, and puts what it makes of one into its channels and its
group's pool, where it stays until all readers have taken it. No task chooses among inputs, so that
what fires next never takes away what another could do: every order of firing ends in the same
state (the net is a marked graph), and one run through it is a proof for all of them.

What is worst for room is assumed: a trainer takes nothing before it has the whole step, and
nothing of a step is forgotten before its last reader is done. Sizes are the expected ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PORTIONS = 4
"""Parts of a step that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A task as far as room goes.

    pool: whose memory holds what it makes. versioned: it waits for the update of the step before.
    whole: it takes a step at once. trains: the next step's versioned tasks wait for it.
    """

    name: str
    pool: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versioned: bool = False
    whole: bool = False
    trains: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """portion: bytes that a portion of each stream takes. channels, pools: bytes of room.

    ahead: steps that what is not versioned may be ahead of the step that trains.
    """

    workers: tuple[Worker, ...]
    portion: Mapping[str, float]
    channels: Mapping[str, float]
    pools: Mapping[str, float]
    ahead: int


@dataclass(slots=True)
class _State:
    done: dict[str, int]
    held: dict[str, float] = field(default_factory=dict)
    read: dict[str, dict[str, int]] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    trained: int = 0


def stuck(net: Net, steps: int | None = None) -> dict[str, str]:
    """Who waits for what when nothing moves any more; empty when `steps` steps end."""
    total = (steps or net.ahead + 3) * PORTIONS
    readers = {s: [w.name for w in net.workers if s in w.inputs] for s in net.portion}
    makers = {stream: w for w in net.workers for stream in w.outputs}
    state = _State({w.name: 0 for w in net.workers})
    state.read = {s: dict.fromkeys(names, 0) for s, names in readers.items()}
    state.made = dict.fromkeys(net.portion, 0)
    state.trained = 0 if any(worker.trains for worker in net.workers) else total
    moved = True
    while moved:
        moved = False
        for worker in net.workers:
            while state.done[worker.name] < total and not _waits(net, state, worker, total):
                _fire(net, state, worker, makers)
                moved = True
    return {
        worker.name: _waits(net, state, worker, total)
        for worker in net.workers
        if state.done[worker.name] < total
    }


def _size(worker: Worker) -> int:
    return PORTIONS if worker.whole else 1


def _waits(net: Net, state: _State, worker: Worker, total: int) -> str:
    """What the worker's next firing waits for, or ""."""
    at, size = state.done[worker.name], _size(worker)
    trained = state.trained
    step = at // PORTIONS
    if worker.versioned and trained < step * PORTIONS:
        return "the update before"
    if not worker.versioned and step > trained // PORTIONS + net.ahead:
        return "the step that trains"
    for stream in worker.inputs:
        if stream in state.made and state.made[stream] < at + size:
            return f"records of {stream}"
    for stream in worker.outputs:
        wanted = net.portion[stream] * size
        free = net.channels.get(stream, float("inf")) - state.held.get(stream, 0.0)
        if wanted > free * (1 + 1e-9):
            return f"room in the channel of {stream}"
    wanted = sum(net.portion[stream] for stream in worker.outputs) * size
    free = net.pools.get(worker.pool, float("inf")) - state.held.get(f"pool {worker.pool}", 0.0)
    return f"room in the pool of {worker.pool}" if wanted > free * (1 + 1e-9) else ""


def _fire(net: Net, state: _State, worker: Worker, makers: Mapping[str, Worker]) -> None:
    size = _size(worker)
    state.done[worker.name] += size
    if worker.trains:
        state.trained = min(state.done[w.name] for w in net.workers if w.trains)
    for stream in worker.inputs:
        own = state.read.get(stream, {})
        before = min(own.values(), default=0)
        own[worker.name] = state.done[worker.name]
        freed = (min(own.values()) - before) * net.portion.get(stream, 0.0)
        if stream in makers:
            _hold(state, stream, makers[stream], -freed)
    for stream in worker.outputs:
        state.made[stream] += size
        if state.read[stream]:
            _hold(state, stream, worker, size * net.portion[stream])


def _hold(state: _State, stream: str, maker: Worker, size: float) -> None:
    for name in (stream, f"pool {maker.pool}"):
        state.held[name] = state.held.get(name, 0.0) + size


def backward_of(applies: Sequence[Worker], gradients: Mapping[str, str]) -> tuple[Worker, ...]:
    """Workers that take gradients: `gradients` names, by stream, whose backward reads it."""
    return tuple(
        Worker(
            name=f"{apply.name} backward",
            pool=apply.pool,
            inputs=tuple(g for g, name in gradients.items() if name == apply.name),
            versioned=True,
            trains=True,
        )
        for apply in applies
        if apply.name in gradients.values()
    )
