"""The arena: free and taken bytes always add up, and no two blocks overlap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.arena import Arena
from tests.runtime.record_strategies import unhurried

SIZE = 64 * 40


@unhurried
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 600)), max_size=80))
def test_blocks_never_overlap_and_bytes_are_conserved(moves: list[tuple[bool, int]]) -> None:
    arena = Arena(SIZE)
    taken: dict[int, int] = {}
    for take, number in moves:
        if take:
            start = arena.take(number)
            if start is None:
                assert arena.largest < number
                continue
            assert start % 64 == 0
            assert all(
                start + number <= at or at + size <= start for at, size in taken.items() if size
            )
            taken[start] = number
        elif taken:
            start = sorted(taken)[number % len(taken)]
            arena.give(start)
            del taken[start]
        assert arena.used == sum(64 * max(1, -(-size // 64)) for size in taken.values())
        assert arena.used <= arena.high_water <= SIZE
    for start in taken:
        arena.give(start)
    assert (arena.used, arena.largest) == (0, SIZE)


def test_the_lowest_gap_that_fits_is_used_first() -> None:
    arena = Arena(SIZE)
    starts = [arena.take(128) for _ in range(4)]
    assert starts == [0, 128, 256, 384]
    arena.give(128)
    arena.give(0)
    assert arena.take(256) == 0
    assert arena.high_water == 512


def test_giving_back_twice_is_an_error() -> None:
    arena = Arena(SIZE)
    start = arena.take(1)
    assert start is not None
    arena.give(start)
    with pytest.raises(KeyError):
        arena.give(start)
