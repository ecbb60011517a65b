"""Which positions are left out, and that membership is the rest in order."""

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.ir.graph import Graph
from flowgraph.runtime.orchestrator.checkpoints import restore
from flowgraph.runtime.orchestrator.quarantine import Quarantine, walk
from flowgraph.runtime.randomness import order
from flowgraph.runtime.stages.sources import order_seed
from tests.passes.graphs import marl
from tests.runs.running import GRAPHS, plan_of
from tests.runtime.orchestrator.world import World

SIZE = 10


def graph(*, shuffle: bool = False) -> Graph:
    found = marl(batch=4, tries=2)
    stages = tuple(
        replace(stage, attributes={**stage.attributes, "shuffle": shuffle})
        if stage.op == "source"
        else stage
        for stage in found.stages
    )
    return replace(found, stages=stages)


def record(position: int, seed: int) -> int:
    epoch, place = divmod(position, SIZE)
    return int(order(order_seed(seed, 0), epoch, SIZE)[place])


def test_of_a_source_of_unknown_size_the_position_alone_is_left_out() -> None:
    quarantine = Quarantine(graph(), [3])
    assert [at for at in range(100) if quarantine.excludes(at, -1)] == [3]


def test_of_one_that_is_read_again_every_later_position_of_the_record_is_left_out() -> None:
    quarantine = Quarantine(graph(), [13])
    left_out = [at for at in range(40) if quarantine.excludes(at, SIZE)]
    assert left_out == [13, 23, 33], "what was trained before it failed stays trained"


def test_in_a_shuffled_order_it_is_the_record_too() -> None:
    shuffled = graph(shuffle=True)
    quarantine = Quarantine(shuffled, [3])
    left_out = [at for at in range(50) if quarantine.excludes(at, SIZE)]
    assert len(left_out) == 5
    assert {record(at, shuffled.seed) for at in left_out} == {record(3, shuffled.seed)}


@given(
    samples=st.sets(st.integers(0, 60), max_size=12),
    start=st.integers(0, 30),
    count=st.integers(1, 20),
    loop=st.booleans(),
    shuffle=st.booleans(),
)
def test_a_walk_is_the_first_positions_that_are_not_left_out(
    samples: set[int], start: int, count: int, loop: bool, shuffle: bool
) -> None:
    quarantine = Quarantine(graph(shuffle=shuffle), samples)
    found, after = walk(quarantine, start, count, size=SIZE, loop=loop)
    ends = 1000 if loop else SIZE
    kept = [at for at in range(start, ends) if not quarantine.excludes(at, SIZE)]
    if not (loop and quarantine.everything(start, SIZE)):
        assert list(found) == kept[:count]
        assert not found or after > found[-1]


def test_when_nothing_is_left_a_walk_ends() -> None:
    quarantine = Quarantine(graph(), range(SIZE))
    assert walk(quarantine, 0, 5, size=SIZE, loop=True)[0] == ()
    late = Quarantine(graph(), range(7, SIZE + 7))
    assert walk(late, 0, 20, size=SIZE, loop=True)[0] == tuple(range(7))


@pytest.mark.parametrize(("start", "count", "expected"), [(8, 5, (8, 9)), (10, 5, ()), (12, 5, ())])
def test_without_a_quarantine_a_walk_is_a_range_that_ends_with_the_source(
    start: int, count: int, expected: tuple[int, ...]
) -> None:
    assert tuple(walk(Quarantine(graph()), start, count, size=SIZE, loop=False)[0]) == expected


def gated(*, quarantined: tuple[int, ...] = (), size: int = -1) -> World:
    """A world whose filters keep all that is not a multiple of five."""
    plan = plan_of(GRAPHS / "letters.py", {"odd_only": "true"}, {"schedule.chunk": 4})
    world = World(plan, choose=lambda _: 0, exact=True, source_size=size, keep=lambda s: s % 5 != 0)
    world.state.quarantine = Quarantine(plan.graph, quarantined)
    return world


def trained(world: World) -> list[int]:
    return [sample for _, _, samples in world.trained for sample in samples]


def test_a_run_with_filters_trains_the_first_that_pass_and_are_not_left_out() -> None:
    world = gated(quarantined=(4, 5, 6, 7, 20))
    result = world.run()
    passing = [at for at in range(100) if at % 5 and at not in (4, 5, 6, 7, 20)]
    assert trained(world) == passing[:24]
    assert result.quarantined == 5
    seen = result.samples["check/odd"]
    assert seen["dropped"] == seen["admitted"] - 24
    assert seen["admitted"] == passing[23] + 1 - 5, "what was put aside was never admitted"


def test_a_run_that_goes_on_shows_its_filters_the_same_blocks_of_positions() -> None:
    whole = gated()
    whole.run()
    position = trained(whole)[7] + 1
    assert position % 4, "the boundary is inside a block"
    world = gated()
    data = {
        "version": 1,
        "step": 1,
        "weights_version": 1,
        "updates": {"lm": 1},
        "records": [],
        "history": [{}],
        "evaluations": {},
        "initial_digests": {},
        "next_position": position,
        "steps": 3,
        "exact": True,
    }
    restore(world.state, msgpack.packb(data))
    assert (position, world.state.gate_cursor) == (10, 8), "the block from 8 on is seen whole"
    world.run()
    assert trained(world) == trained(whole)[8:]
    assert world.state.gate_from == position


def test_when_everything_is_left_out_the_source_has_ended() -> None:
    world = gated(quarantined=tuple(range(10)), size=10)
    assert world.run().steps == 0
