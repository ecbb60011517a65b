"""Places of a segment: every change is in the table, none is used twice at once."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.pool import Handle, Reservation, Segment
from flowgraph.runtime.slots import ALLOWED, Slot, Slots
from tests.runtime.record_strategies import unhurried

MOVES = {
    "reserve": Slot.RESERVED,
    "abandon": Slot.FREE,
    "fill": Slot.FILLED,
    "publish": Slot.READY,
    "free": Slot.FREE,
}
WAYS = {
    Slot.FREE: (),
    Slot.RESERVED: ("reserve",),
    Slot.FILLED: ("reserve", "fill"),
    Slot.READY: ("reserve", "fill", "publish"),
}


def move(slots: Slots, name: str) -> None:
    if name == "publish":
        slots.publish(0, 7)
    else:
        getattr(slots, name)(0)


@pytest.mark.parametrize(("state", "name"), list(itertools.product(WAYS, MOVES)))
def test_a_move_is_made_if_the_table_has_it_and_is_our_bug_otherwise(
    state: Slot, name: str
) -> None:
    slots = Slots()
    for step in WAYS[state]:
        move(slots, step)
    allowed = MOVES[name] in ALLOWED[state]
    if name in ("abandon", "free"):  # both end in FREE, each from its own state
        allowed = state is (Slot.RESERVED if name == "abandon" else Slot.READY)
    if allowed:
        move(slots, name)
        assert slots.state(0) is MOVES[name]
        return
    with pytest.raises(InternalError, match=f"at 0 (cannot go from {state.name}|is {state.name})"):
        move(slots, name)
    assert slots.state(0) is state


def test_the_table_leads_round_and_nowhere_else() -> None:
    assert set(ALLOWED) == set(Slot)
    ring = [Slot.FREE, Slot.RESERVED, Slot.FILLED, Slot.READY, Slot.LEASED, Slot.FREE]
    round_ = set(itertools.pairwise(ring))
    back = {(Slot.RESERVED, Slot.FREE), (Slot.READY, Slot.FREE)}  # never filled; nobody reads it
    assert {(a, b) for a, after in ALLOWED.items() for b in after} == round_ | back


@unhurried
@given(st.lists(st.tuples(st.sampled_from("rafx"), st.integers(0, 900)), max_size=60))
def test_a_segment_never_repeats_a_generation_and_ends_empty(moves: list[tuple[str, int]]) -> None:
    segment = Segment("worker-0", 1 << 12)
    reserved: list[Reservation] = []
    ready: list[Handle] = []
    generations: list[int] = []
    for kind, number in moves:
        if kind == "r" and (room := segment.try_reserve(number)) is not None:
            reserved.append(room)
        elif kind == "a" and reserved:
            segment.abandon(reserved.pop(number % len(reserved)))
        elif kind == "f" and reserved:
            handle = segment.fill(reserved.pop(number % len(reserved)), 0, (0, ()))
            generations.append(handle.generation)
            ready.append(handle)
        elif kind == "x" and ready:
            segment.free(ready.pop(number % len(ready)))
        assert segment.blocks == len(ready)
    assert generations == sorted(set(generations))
    for room in reserved:
        segment.abandon(room)
    for handle in ready:
        segment.free(handle)
    assert segment.used == 0
    segment.close()
