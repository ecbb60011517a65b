"""check-consistency: every training edge reads the version it must, and a step can be done."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Stage, Stream
from flowgraph.ir.index import Index, attribute, index
from flowgraph.passes.lower_edges import trained_modules
from flowgraph.passes.pins import AHEAD_LIMIT
from flowgraph.passes.state import Choices, State

Act = tuple[str, str]
"""What happens in a step: (stage, `run` or `backward`), (module, `update` or `load`)."""

MOST_AHEAD = 2
"""Steps of samples that are buffered unless `schedule.ahead` is pinned."""


@dataclass(slots=True)
class StepOrder:
    """What must come before what, with the steps that lie between. edges: (from, to, delay)."""

    edges: list[tuple[Act, Act, int]] = field(default_factory=list)

    def before(self, first: Act, then: Act, delay: int = 0) -> None:
        self.edges.append((first, then, delay))

    def cycle(self) -> list[Act]:
        """Acts of one step that wait for each other, or none: then a step can be done in order."""
        within = [(a, b) for a, b, delay in self.edges if delay == 0]
        missing: dict[Act, int] = {}
        after: dict[Act, list[Act]] = {}
        for a, b in within:
            missing[b] = missing.get(b, 0) + 1
            missing.setdefault(a, 0)
            after.setdefault(a, []).append(b)
        ready = deque(act for act, count in missing.items() if count == 0)
        while ready:
            for act in after.get(ready.popleft(), ()):
                missing[act] -= 1
                if missing[act] == 0:
                    ready.append(act)
        left = {act for act, count in missing.items() if count > 0}
        return _a_cycle(left, within)


@dataclass(frozen=True, slots=True)
class CheckConsistency:
    """Requires explicit edges. Ensures that each step ends, and what version each module trains
    on: its own (staleness 0) unless the graph declares a bound. Changes nothing.

    Proved from the edges alone. A step is a set of acts (a stage runs, runs backward, a module is
    updated, loaded); data and gradients order acts of the same step, weights of delay d an update
    before the load d steps on. (1) Acts of one step are in no circle, so that a step ends.
    (2) A load at step s reads the update of step s - d, hence what runs behind it is made by
    weights d - 1 updates behind: the bound. With 0 the order is update, load, generate, train.
    """

    name: ClassVar[str] = "check-consistency"

    def apply(self, state: State) -> State:
        choices = Choices(self.name, state.pins)
        at = index(state.graph)
        for stream in state.graph.streams:
            _check_delay(at, stream)
        _check_ends(at, step_order(at))
        for module, train in trained_modules(state.graph).items():
            bound = at.streams[f"{module}.weights"].delay - 1
            if bound == 0:
                because = "update, then load, then generate: data and gradients have delay 0"
            else:
                because = f"declared; weights are loaded {bound} updates late at most"
                _check_buffer(state, train, bound)
            choices.choose(module, "staleness", bound, because)
        return choices.onto(state)


def step_order(at: Index) -> StepOrder:
    """All acts of a step and their order."""
    order = StepOrder()
    trained = trained_modules(at.graph)
    gradients = {s.name.removesuffix(".gradient") for s in at.graph.streams if s.kind == "gradient"}
    for stage in at.graph.stages:
        for parent in at.parents(stage):
            order.before((parent.name, "run"), (stage.name, "run"))
        for module in _loaded(at, stage):
            if module in trained:
                order.before((module, "load"), (stage.name, "run"))
        if stage.op == "apply" and set(stage.outputs) & gradients:
            order.before((stage.name, "run"), (stage.name, "backward"))
            order.before((stage.name, "backward"), (stage.modules[0], "update"))
    for stream in at.graph.streams:
        if stream.kind == "gradient":
            maker = at.producer(stream.name.removesuffix(".gradient"))
            if maker is not None:
                order.before((stream.producer, "run"), (maker.name, "backward"), stream.delay)
        if stream.kind == "weights":
            module = stream.name.removesuffix(".weights")
            order.before((stream.producer, "run"), (module, "update"))
            order.before((module, "update"), (module, "load"), stream.delay)
    return order


def _loaded(at: Index, stage: Stage) -> Iterable[str]:
    """Modules whose weights the stage runs with."""
    if stage.op == "episodes":
        return [at.agents[name].module for name in stage.agents]
    return stage.modules[:1] if stage.op in ("apply", "train") else ()


def _check_delay(at: Index, stream: Stream) -> None:
    """Data and gradients stay in their step; weights cross as many updates as are declared."""
    wanted: Mapping[str, int] = {"data": 0, "gradient": 0}
    expected = wanted.get(stream.kind)
    if expected is None:
        expected = 1 + attribute(at.stages[stream.producer], "staleness")
    if stream.delay == expected:
        return
    raise GraphError(
        f"stream {stream.name!r}: expects delay {expected} of {stream.kind}, for a step to be "
        + ("synchronous" if expected < 2 else f"{expected - 1} updates late at most")
        + f", got {stream.delay}",
        at=stream.at,
        hint="leave the stream out: the compiler makes it",
        node=f'stream "{stream.name}"',
        term=f"delay={stream.delay}",
    )


def _check_ends(at: Index, order: StepOrder) -> None:
    cycle = order.cycle()
    if not cycle:
        return
    stage = next((at.stages[name] for name, _ in cycle if name in at.stages), None)
    way = " -> ".join(f"{name} ({what})" for name, what in [*cycle, cycle[0]])
    raise GraphError(
        f"a step never ends: {way} wait for one another in the same step",
        at=stage.at if stage else None,
        hint="let weights or gradients on the way be of an earlier step",
        node=f'stage "{stage.name}"' if stage else "",
    )


def _check_buffer(state: State, train: Stage, bound: int) -> None:
    """Samples that are `bound` steps early must have a place to wait in."""
    ahead = state.pins.get("schedule", "ahead") or min(max(MOST_AHEAD, bound), AHEAD_LIMIT)
    if ahead >= bound:
        return
    raise GraphError(
        f"stage {train.name!r}: staleness={bound} cannot be reached, since schedule.ahead={ahead} "
        f"lets samples of {ahead} steps wait at most",
        at=train.at,
        hint=f"staleness={ahead}"
        if bound > AHEAD_LIMIT
        else f"schedule.ahead={bound}, or staleness={ahead}",
        node=f'stage "{train.name}"',
        term="staleness",
    )


def _a_cycle(left: set[Act], edges: list[tuple[Act, Act]]) -> list[Act]:
    """One cycle among acts each of which waits for another of them, or for one behind them."""
    before = {b: a for a, b in edges if a in left and b in left}
    if not before:
        return []
    act, seen = min(before), list[Act]()
    while act not in seen:
        seen.append(act)
        act = before[act]
    return seen[seen.index(act) :][::-1]
