"""Law 7: a well-formed message that comes at a wrong time is counted and refused, never fatal."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import (
    BackwardDone,
    Done,
    FromWorker,
    Full,
    Generated,
    Issued,
    Loaded,
    PlainHandle,
    Ready,
    Released,
    Saved,
    Stopped,
    Updated,
)
from flowgraph.runtime.orchestrator.state import Worker
from tests.passes.graphs import filtered, laptop, marl, vlm
from tests.runtime.orchestrator.world import World, first
from tests.runtime.simulate.laws import check_state

PINS = {"host.replicas": 2}


@cache
def plan_of(name: str) -> Plan:
    graphs = {"agents": marl(batch=8, tries=4), "digits": vlm(batch=8), "filtered": filtered(8)}
    return compile_graph(graphs[name], laptop(), PINS)


T = TypeVar("T")


@cache
def undisturbed(name: str, exact: bool) -> World:
    world = World(plan_of(name), first, exact=exact)
    world.run()
    return world


class Noise:
    """Says things that workers say, with names and numbers that are in use."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.world = world
        self.draw = draw

    def message(self) -> FromWorker:
        kinds: list[Callable[[Worker], FromWorker]] = [
            self.ready,
            self.done,
            self.backward,
            self.issued,
            self.generated,
            self.updated,
            self.loaded,
            self.saved,
            self.full,
            self.released,
            self.stopped,
        ]
        return self.draw.choice(kinds)(self.draw.choice(list(self.world.state.workers.values())))

    def some(self, *choices: T) -> T:
        return self.draw.choice(choices)

    def number(self) -> int:
        return self.draw.choice([-1, 0, 1, 2, 3, 10**9])

    def incarnation(self, worker: Worker) -> int:
        return self.some(worker.incarnation, worker.incarnation, self.number())

    def handle(self, worker: Worker) -> PlainHandle:
        owner = self.some(worker.token, worker.token, "host-0#9")
        return (owner, 1, 3, 64 * self.draw.randrange(1000), 64, self.draw.getrandbits(40), 1, ())

    def item(self, worker: Worker) -> int:
        return self.some(*worker.items, *self.world.state.items, self.number())

    def ready(self, worker: Worker) -> Ready:
        sizes = {str(self.some(0, 1, 9)): self.number()}
        return Ready(worker=worker.name, pid=1, sizes=sizes, incarnation=self.incarnation(worker))

    def done(self, worker: Worker) -> Done:
        number = self.item(worker)
        known = self.world.state.items.get(number)
        units = known.units if known and self.draw.random() < 0.8 else (0,)
        plan = self.world.plan
        streams = [stream.name for stream in plan.graph.streams]
        made = list(plan.task(known.task).outputs) if known else []
        streams = self.some(made, made, self.draw.sample(streams, 1), [])
        extra = [f"gradient/{self.some(*streams)}"] if streams and self.draw.random() < 0.3 else []
        return Done(
            worker=worker.name,
            item=number,
            outputs={s: tuple(self.handle(worker) for _ in units) for s in [*streams, *extra]},
            sizes={s: tuple(self.some(0, 5, -1) for _ in units) for s in streams},
            weights=tuple(self.some(1.0, 2.0, float("nan")) for _ in self.some(units, ())),
            metrics={self.some("loss", "reward/nobody", "reward/solver"): (1.0, 1.0)},
            kept=self.some((), (), (self.number(),)),
            dropped=self.some((), (), ((self.number(), "why"),)),
            tokens=1,
            busy_s=0.0,
            incarnation=self.incarnation(worker),
        )

    def backward(self, worker: Worker) -> BackwardDone:
        return BackwardDone(
            worker=worker.name,
            item=self.item(worker),
            busy_s=0.0,
            incarnation=self.incarnation(worker),
        )

    def issued(self, worker: Worker) -> Issued:
        """Numbers that were used before."""
        agent = self.some("solver", "verifier", "nobody")
        last = worker.asked.get(agent, -1)
        return Issued(
            worker=worker.name,
            agent=agent,
            calls=tuple((self.some(-1, last, last - 1),) for _ in range(self.draw.randint(1, 3))),
            incarnation=self.incarnation(worker),
        )

    def generated(self, worker: Worker) -> Generated:
        calls = self.world.state.calls
        ids = self.draw.sample(list(calls), min(2, len(calls)))
        return Generated(
            worker=worker.name,
            origin=self.some(*(origin for origin, _ in ids), "host-0", "nobody"),
            completions=tuple((number,) for _, number in ids) or ((self.number(),),),
            tokens=1,
            busy_s=0.0,
            incarnation=self.incarnation(worker),
        )

    def full(self, worker: Worker) -> Full:
        """For want of room that is on its way, or before it was given any."""
        freed = worker.frees + self.some(-1, -2, 1)
        incarnation = self.incarnation(worker)
        return Full(worker=worker.name, stream="s", nbytes=1, freed=freed, incarnation=incarnation)

    def released(self, worker: Worker) -> Released:
        names = list(self.world.state.references)
        some = tuple(self.draw.sample(names, min(2, len(names))))
        return Released(
            worker=worker.name,
            blocks=self.some(some, ()),
            asked=self.some(True, False),
            incarnation=self.incarnation(worker),
        )

    def updated(self, worker: Worker) -> Updated:
        version = self.world.state.version
        return Updated(
            worker=worker.name,
            version=self.some(version, version + 1, self.number()),
            metrics={},
            weights=self.some(None, self.handle(worker)),
            digest="",
            busy_s=0.0,
            incarnation=self.incarnation(worker),
        )

    def loaded(self, worker: Worker) -> Loaded:
        version = self.some(self.world.state.version, self.world.state.version + 1, self.number())
        return Loaded(
            worker=worker.name,
            version=version,
            busy_s=0.0,
            incarnation=self.incarnation(worker),
        )

    def saved(self, worker: Worker) -> Saved:
        step = self.some(*self.world.state.saving, self.number())
        return Saved(
            worker=worker.name, step=step, busy_s=0.0, incarnation=self.incarnation(worker)
        )

    def stopped(self, worker: Worker) -> Stopped:
        return Stopped(
            worker=worker.name,
            digest="d",
            initial_digest="i",
            incarnation=self.incarnation(worker),
        )


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1_000_000),
    name=st.sampled_from(["agents", "digits", "filtered"]),
    exact=st.booleans(),
    losses=st.booleans(),
)
def test_whatever_is_said_at_whatever_time_the_run_goes_on_and_trains_every_sample_once(
    seed: int, name: str, exact: bool, losses: bool
) -> None:
    draw = random.Random(seed)
    plan = plan_of(name)
    world = World(
        plan, lambda count: draw.randrange(count), exact=exact, payload=False, watch=check_state
    )
    noise = Noise(world, draw)
    for _ in range(5000):
        if world.result is not None:
            break
        if draw.random() < 0.7:
            world.feed(noise.message())
        if losses and draw.random() < 0.03:
            world.lose(draw.choice(["host-0", "host-1"]))
        if world.waiting:
            world.run_some(1)
    assert world.result is not None
    assert world.refused.total() > 10
    whole = undisturbed(name, exact)
    expected = whole.result
    assert expected is not None
    assert set(world.trained) == set(whole.trained) or not exact
    assert world.result.updates == expected.updates
    if name != "filtered":  # whose membership is what its filters are said to have kept
        assert world.result.samples == expected.samples


def at(name: str, events: int) -> World:
    world = World(plan_of(name), first, payload=False)
    world.run_some(events)
    return world


def test_a_done_that_comes_twice_counts_once() -> None:
    world = at("digits", 8)
    place = next(i for i, (_, m) in enumerate(world.waiting) if isinstance(m, Done))
    done = world.waiting.pop(place)[1]
    world.feed(done)
    records = {key: record.consumed for key, record in world.state.steps[0].records.items()}
    world.feed(done)
    assert world.refused == Counter({"out of turn": 1})
    assert records == {key: r.consumed for key, r in world.state.steps[0].records.items()}


@pytest.mark.parametrize("version", [-1, 0, 2, 7])
def test_an_update_to_another_version_is_refused_and_the_barrier_waits_on(version: int) -> None:
    world = World(plan_of("digits"), first, payload=False)
    while not (world.state.steps and world.state.steps[0].waiting_for):
        world.run_some(1)
    waiting = set(world.state.steps[0].waiting_for)
    name = min(waiting)
    wrong = Updated(worker=name, version=version, metrics={}, weights=None, digest="", busy_s=0.0)
    world.feed(wrong)
    assert world.state.steps[0].waiting_for == waiting
    assert world.refused == Counter({"out of turn": 1})
    world.run()


def test_a_done_that_does_not_fit_changes_nothing_and_is_told_with_the_reason() -> None:
    world = at("digits", 8)
    done = next(m for _, m in world.waiting if isinstance(m, Done) and m.outputs)
    stream = next(iter(done.outputs))
    for wrong in (
        replace(done, outputs={**done.outputs, "elsewhere": ()}),
        replace(done, outputs={**done.outputs, stream: ()}),
        replace(done, sizes={}),
        replace(done, kept=(10**6,)),
        replace(done, dropped=((10**6, "gone"),)),
        replace(done, metrics={"reward/nobody": (1.0, 1.0)}),
    ):
        world.feed(wrong)
    assert world.refused == Counter({"misfit": 6})
    world.run()


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0])
def test_a_gradient_of_no_weight_that_can_be_added_is_refused(weight: float) -> None:
    world = World(plan_of("digits"), first, payload=False)
    trained = [m for _, m in world.waiting if isinstance(m, Done) and m.weights]
    while not trained:
        world.run_some(1)
        trained = [m for _, m in world.waiting if isinstance(m, Done) and m.weights]
    for place in range(len(trained[0].weights)):
        weights = list(trained[0].weights)
        weights[place] = weight
        world.feed(replace(trained[0], weights=tuple(weights)))
        assert world.refused == Counter({"misfit": place + 1})
    world.run()
