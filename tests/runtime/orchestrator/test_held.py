"""Blocks that are looked at after their item: they stay leased, and nobody waits for ever."""

import random
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.plan import Plan
from flowgraph.passes import compile_graph
from flowgraph.runtime.messages import (
    BackwardDone,
    BlockName,
    Done,
    Free,
    FromWorker,
    Full,
    Message,
    Ready,
    Recall,
    Released,
    Run,
)
from flowgraph.runtime.orchestrator.blocks import block_id
from flowgraph.runtime.orchestrator.events import Abort, Action, Refuse, Send, Started, WorkerDied
from flowgraph.runtime.orchestrator.waits import wait_report
from tests.passes.graphs import filtered, laptop, marl, vlm
from tests.runs.running import GRAPHS
from tests.runs.running import plan_of as plan_of_file
from tests.runtime.orchestrator.world import World, first
from tests.runtime.simulate.laws import check_state


@cache
def plan_of(name: str) -> Plan:
    if name == "agents":
        pins = {"host.replicas": 2, "solver.engines": 2}
        return compile_graph(marl(batch=8, tries=4), laptop(), pins)
    graph = filtered(8) if name == "filtered" else vlm(batch=8)
    stages = tuple(stage for stage in graph.stages if stage.op != "evaluate")
    return compile_graph(replace(graph, stages=stages), laptop(), {"host.replicas": 2})


@dataclass
class Keeping(World):
    """Workers that keep views of some of what they read, and let go of them when they like."""

    draw: random.Random = field(default_factory=random.Random)
    share: float = 0.3
    holding: dict[tuple[str, BlockName], None] = field(default_factory=dict)  # (process, block)
    told: int = 0

    def _hold(self, worker: str, names: list[BlockName]) -> tuple[BlockName, ...]:
        token = self.state.workers[worker].token
        mine = [
            name
            for name in dict.fromkeys(names)
            if (token, name) not in self.holding and self.draw.random() < self.share
        ]
        self.holding.update({(token, name): None for name in mine})
        self.told += len(mine)
        return tuple(mine)

    def _done(self, worker: str, run: Run) -> Done:
        done = super()._done(worker, run)
        task = self.plan.task(run.task)
        learns = task.kind == "apply" and self.state.topology.gradient_source(task) is not None
        if learns and run.variant == 0:
            return done
        read = [block_id(h) for units in run.inputs.values() for unit in units for h in unit]
        return replace(done, held=self._hold(worker, read))

    def _later(self, worker: str, message: FromWorker) -> None:
        if isinstance(message, BackwardDone):
            item = self.state.items[message.item]
            message = replace(message, held=self._hold(worker, list(map(block_id, item.reads))))
        super()._later(worker, message)

    def feed(self, event: Message | Started | WorkerDied) -> list[Action]:  # type: ignore[override]
        if self.holding and self.draw.random() < 0.3:
            self._let_go()
        return super().feed(event)

    def _let_go(self) -> None:
        token, _ = self.draw.choice(list(self.holding))
        living = self.state.living.get(token)
        if living is None or self.state.workers[living].stopped:
            return
        mine = [name for owner, name in self.holding if owner == token]
        gone = tuple(name for name in mine if self.draw.random() < 0.5)
        for name in gone:
            del self.holding[token, name]
        if gone:
            self._later(living, Released(worker=living, blocks=gone, asked=False))

    def _answer(self, worker: str, message: Message) -> None:
        if isinstance(message, Free):
            token = self.state.workers[worker].token
            for offset, generation in message.blocks:
                name = (token, offset, generation)
                keepers = [
                    owner
                    for owner, held in self.holding
                    if held == name and owner in self.state.living
                    if not self.state.workers[self.state.living[owner]].stopped
                ]
                assert not keepers, f"{name} was freed while {keepers} look at it"
        super()._answer(worker, message)

    def lose(self, worker: str) -> None:
        token = self.state.workers[worker].token
        self.holding = {key: None for key in self.holding if key[0] != token}
        super().lose(worker)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    exact=st.booleans(),
    name=st.sampled_from(["agents", "digits", "filtered"]),
    killed=st.sampled_from([0.0, 0.05]),
)
def test_whatever_is_held_no_block_ends_while_it_is_looked_at_and_all_end_once(
    seed: int, exact: bool, name: str, killed: float
) -> None:
    draw = random.Random(seed)
    plan = plan_of(name)
    lost = [f"{g.name}-{i}" for g in plan.groups if g.kind != "gang" for i in range(g.replicas)]
    world = Keeping(
        plan,
        lambda count: draw.randrange(count),
        exact=exact,
        kill=lambda _: draw.choice(lost) if draw.random() < killed else None,
        restarts=10_000,
        watch=check_state,
        draw=draw,
    )
    world.run()
    assert world.told
    assert set(world.refused) <= {"late message", "late answer"}
    assert not any(worker.held for worker in world.state.workers.values())
    if name != "filtered":  # a filter's blocks of samples beyond the last step end with the run
        assert not world.live
        assert not world.state.references
        assert not world.state.retired


@dataclass
class Standing(World):
    """A graph with a filter and a map behind it, on one stage worker, stopped where it likes."""

    recalled: list[str] = field(default_factory=list)

    def _answer(self, worker: str, message: Message) -> None:
        if isinstance(message, Recall):
            self.recalled.append(worker)
            return
        super()._answer(worker, message)

    def until_mapped(self) -> Done:
        """The end of the map's next item, which was not heard yet."""
        if not self.began:
            self.began = True
            self.feed(Started())
            for name in self.state.workers:
                self.feed(Ready(worker=name, pid=1, sizes={"0": -1}))
        while True:
            for place, (_, message) in enumerate(self.waiting):
                if isinstance(message, Done) and self.state.items[message.item].reads:
                    del self.waiting[place]
                    return message
            self.feed(self.waiting.pop(0)[1])

    def full(self, worker: str = "host-0", less: int = 0) -> list[Action]:
        """It finds no room. less: `Free` messages that are on their way to it."""
        freed = self.state.workers[worker].frees - less
        return self.feed(Full(worker=worker, stream="good", nbytes=640, freed=freed))

    def others_end(self) -> None:
        """Whatever others than the stage worker have to say."""
        while others := [m for w, m in self.waiting if w != "host-0"]:
            self.waiting = [(w, m) for w, m in self.waiting if m is not others[0]]
            self.feed(others[0])


def standing() -> Standing:
    return Standing(plan_of_file(GRAPHS / "hoarder.py"), first)


def names_read(world: Standing, done: Done) -> tuple[BlockName, ...]:
    return tuple(dict.fromkeys(map(block_id, world.state.items[done.item].reads)))


def holding() -> tuple[Standing, tuple[BlockName, ...]]:
    """The map's first item is over, and holds what it has read."""
    world = standing()
    done = world.until_mapped()
    names = names_read(world, done)
    world.feed(replace(done, held=names))
    world.others_end()
    assert world.state.workers["host-0"].items, "it has more to do"
    return world, names


def freed(actions: list[Action]) -> list[tuple[int, int]]:
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [block for message in sent if isinstance(message, Free) for block in message.blocks]


def test_a_held_block_is_free_when_it_is_released_and_not_before() -> None:
    world, names = holding()
    assert all(name in world.live for name in names)
    actions = world.feed(Released(worker="host-0", blocks=names, asked=False))
    assert freed(actions) == [name[1:] for name in names]
    assert not world.state.workers["host-0"].held


def test_what_is_held_is_free_when_the_process_is_lost() -> None:
    world, names = holding()
    world.lose("host-0")
    assert not any(name in world.state.references for name in names)
    assert not world.state.workers["host-0"].held


@pytest.mark.parametrize("blocks", [(("host-0", 0, 0),), "twice"])
def test_what_was_not_held_or_is_told_twice_is_refused(blocks: object) -> None:
    world, names = holding()
    wrong = (names[0], names[0]) if blocks == "twice" else blocks
    before = dict(world.state.references)
    message = Released(worker="host-0", blocks=wrong, asked=False)  # type: ignore[arg-type]
    assert [type(action) for action in world.feed(message)] == [Refuse]
    message = Released(worker="host-0", blocks=(), asked=True)
    assert [type(action) for action in world.feed(message)] == [Refuse], "it was not asked"
    assert world.state.references == before


def test_an_item_cannot_hold_what_it_has_not_read() -> None:
    world = standing()
    done = world.until_mapped()
    actions = world.feed(replace(done, held=(("host-0", 0, 0),)))
    assert [type(action) for action in actions] == [Refuse]
    assert done.item in world.state.workers["host-0"].items


def test_a_full_pool_is_no_concern_while_somebody_can_go_on() -> None:
    world = standing()
    done = world.until_mapped()
    world.feed(replace(done, held=names_read(world, done)))
    gang = [w for w in world.state.workers.values() if w.group.kind == "gang"]
    assert not any(worker.items for worker in gang)
    world.state.workers[gang[0].name].items.add(-1)  # it computes
    assert world.full() == []
    assert world.recalled == []
    report = wait_report(world.state, 1.0)
    host = next(worker for worker in report.workers if worker.name == "host-0")
    assert host.waits_for == "room for 640 bytes of good in its pool"
    assert host.whom == ("host-0",)
    assert [(stream, blocks) for _, stream, blocks, _ in host.keeps] == [("good", 1)]
    assert host.pool is not None
    assert host.pool.blocks >= 1
    assert host.pool.nbytes == 128 * host.pool.blocks


def test_a_full_pool_to_which_room_is_on_its_way_is_no_standstill() -> None:
    world, names = holding()
    world.feed(Released(worker="host-0", blocks=names, asked=False))
    assert world.full(less=1) == []
    assert not world.state.full
    assert world.full(less=-1) != [], "it cannot have taken what it was not sent"


def test_who_holds_blocks_of_a_full_pool_is_asked_once_and_then_named() -> None:
    world, names = holding()
    world.full()
    assert world.recalled == ["host-0"]
    assert world.full() == [], "the answer is still to come"
    (abort,) = world.feed(Released(worker="host-0", blocks=(), asked=True))
    assert isinstance(abort, Abort)
    assert abort.stage == "remember"
    assert abort.what == (
        f"stage 'remember' keeps {len(names)} blocks, {64 * len(names)} bytes, of stream 'good' "
        "after its work was done (in worker host-0), while worker host-0 waits for room for 640 "
        f"bytes of stream 'good' in its pool of {world.plan.pool_bytes:,}"
    )
    assert "numpy.array(x)" in abort.hint


def test_garbage_that_is_found_makes_room_and_the_run_goes_on() -> None:
    world, names = holding()
    world.full()
    actions = world.feed(Released(worker="host-0", blocks=names, asked=True))
    assert freed(actions) == [name[1:] for name in names]
    assert not world.state.full, "room is on its way"
    assert world.aborted is None


def test_who_holds_more_since_it_looked_in_vain_is_asked_again() -> None:
    world, _ = holding()
    world.full()
    gang = next(w for w in world.state.workers.values() if w.group.kind == "gang")
    gang.items.add(-1)  # it has work now
    assert world.feed(Released(worker="host-0", blocks=(), asked=True)) == []
    done = world.until_mapped()
    world.feed(replace(done, held=names_read(world, done)))
    gang.items.clear()
    world.full()
    assert world.aborted is None
    assert world.recalled == ["host-0", "host-0"]


def test_each_standstill_asks_anew_since_what_was_held_may_have_become_garbage() -> None:
    world, names = holding()
    world.full()
    gang = next(w for w in world.state.workers.values() if w.group.kind == "gang")
    gang.items.add(-1)  # it has work now
    assert world.feed(Released(worker="host-0", blocks=(), asked=True)) == []
    world.feed(world.until_mapped())  # it holds no more than before
    gang.items.clear()
    world.full()
    assert world.aborted is None
    assert world.recalled == ["host-0", "host-0"]
    actions = world.feed(Released(worker="host-0", blocks=names, asked=True))
    assert freed(actions) == [name[1:] for name in names]


def test_who_found_too_little_is_asked_again() -> None:
    world, names = holding()
    done = world.until_mapped()
    more = names_read(world, done)
    world.feed(replace(done, held=more))
    world.others_end()
    world.full()
    world.feed(Released(worker="host-0", blocks=names, asked=True))
    world.full()
    assert world.aborted is None
    assert world.recalled == ["host-0", "host-0"]
    (abort,) = world.feed(Released(worker="host-0", blocks=(), asked=True))
    assert isinstance(abort, Abort)


def test_one_that_is_lost_while_it_is_asked_is_replaced() -> None:
    world, _ = holding()
    world.full()
    world.lose("host-0")
    assert world.aborted is None
    assert not world.state.workers["host-0"].recalled
    world.recalled.clear()
    world.waiting = [(w, m) for w, m in world.waiting if m.incarnation or w != "host-0"]
    world.run_some(100_000)
    assert world.result is not None


def test_a_pool_that_nobody_can_make_room_in_ends_the_run_though_nothing_is_held() -> None:
    world = standing()
    done = world.until_mapped()
    world.feed(done)
    world.others_end()
    (abort,) = world.full()
    assert isinstance(abort, Abort)
    assert "nothing that is in its pool can be consumed" in abort.what
