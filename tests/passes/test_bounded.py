"""Bounded room: what would wait for ever is found, and what need not is let through."""

import random
from dataclasses import replace

from flowgraph.passes.bounded import PORTIONS, Net, Worker, backward_of, stuck
from flowgraph.passes.pipeline import PIPELINE, run_passes
from flowgraph.passes.room_check import bounded_net, still
from tests.passes.graphs import filtered, laptop


def diamond(left: float, right: float, **changes: float) -> Net:
    """A source whose records go to a trainer at once, and by way of an encoder."""
    encode = Worker(
        name="encode", pool="gang", inputs=("images",), outputs=("features",), versioned=True
    )
    workers = (
        Worker(name="read", pool="host", outputs=("samples", "images")),
        encode,
        Worker(
            name="train",
            pool="trainer",
            inputs=("samples", "features"),
            outputs=("gradient",),
            versioned=True,
            whole=True,
            trains=True,
        ),
        *backward_of([encode], {"gradient": "encode"}),
    )
    return Net(
        workers=workers,
        portion={"samples": 1, "images": 1, "features": 1, "gradient": 1},
        channels={"samples": left, "images": right, "features": 9, "gradient": 9},
        pools={name: changes.get(name, 99) for name in ("host", "gang", "trainer")},
        ahead=int(changes.get("ahead", 2)),
    )


def test_a_step_of_room_is_enough_for_a_join() -> None:
    assert stuck(diamond(PORTIONS, 1)) == {}


def test_less_than_a_step_of_room_before_a_join_waits_for_ever() -> None:
    waits = stuck(diamond(PORTIONS - 1, PORTIONS))
    assert waits["read"] == "room in the channel of samples"
    assert waits["train"] == "records of samples"


def test_a_pool_of_less_than_a_step_waits_for_ever() -> None:
    assert stuck(diamond(99, 99, host=PORTIONS + 1)) == {}
    assert stuck(diamond(99, 99, host=PORTIONS))["read"] == "room in the pool of host"


def beside(ahead: int) -> Net:
    """Two makers in one pool of two steps: one may run ahead of the other."""
    both = {"early": 1.0, "late": 1.0}
    workers = (
        Worker(name="reads", pool="host", outputs=("early",)),
        Worker(name="plays", pool="host", outputs=("late",), versioned=True),
        Worker(name="train", pool="", inputs=("early", "late"), versioned=True, trains=True),
    )
    room = {"host": 2.0 * PORTIONS}
    return Net(workers=workers, portion=both, channels={}, pools=room, ahead=ahead)


def test_what_is_made_ahead_can_fill_the_room_of_what_is_needed_now() -> None:
    assert stuck(beside(ahead=0)) == {}
    assert stuck(beside(ahead=2))["plays"] == "room in the pool of host"


def test_gradients_need_room_for_a_step() -> None:
    assert stuck(diamond(9, 9, trainer=PORTIONS)) == {}
    waits = stuck(diamond(9, 9, trainer=PORTIONS - 1))
    assert waits["train"] == "room in the pool of trainer"


def test_the_order_of_firing_does_not_matter() -> None:
    for seed in range(50):
        draw = random.Random(seed)
        net = diamond(
            draw.randint(1, 6),
            draw.randint(1, 6),
            host=draw.randint(1, 16),
            ahead=draw.randint(1, 3),
        )
        workers = list(net.workers)
        draw.shuffle(workers)
        other = Net(
            workers=tuple(workers),
            portion=net.portion,
            channels=net.channels,
            pools=net.pools,
            ahead=net.ahead,
        )
        assert stuck(net) == stuck(other), seed


def test_a_compiled_plan_never_waits_for_ever_and_one_with_too_small_a_pool_would() -> None:
    state = run_passes(PIPELINE, filtered(), laptop())
    assert still(state) == {}
    kept = next(channel for channel in state.channels if channel.stream == "kept")
    portion = bounded_net(state, [kept], ahead=2).portion["kept"]
    full = replace(state, pool_bytes=int(PORTIONS * portion))
    assert still(full)["images"] == "room in the pool of host"
