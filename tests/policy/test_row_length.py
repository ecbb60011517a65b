"""The length of packed rows where attention looks at whole rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.policy import Cost, Packs, pack_cheapest, pack_lengths, runs_of
from tests.policy.plans import check_whole

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def cost_of(packs: Packs, cost: Cost) -> float:
    return float(len(packs) * cost.of([packs.cap])[0])


@given(LENGTHS, st.sampled_from([1.0, 64.0, 1e9]))
def test_every_sample_is_packed_once_in_no_more_rows_than_the_shortest_take(
    lengths: list[int], attention: float
) -> None:
    cost = Cost(linear=1.0, quadratic=1.0 / attention)
    packs = pack_cheapest(lengths, cost=cost)
    check_whole([packs], lengths)
    shortest = pack_lengths(lengths, cap=max(lengths))
    assert len(packs) <= len(shortest)
    doublings = np.log2(packs.cap / max(lengths))
    assert doublings == int(doublings)


def test_dear_attention_keeps_rows_short_and_cheap_attention_fills_them() -> None:
    lengths = [16] + [9] * 30
    dear = Cost(linear=1.0, quadratic=1.0)
    assert pack_cheapest(lengths, cost=dear).cap == 16
    cheap = pack_cheapest(lengths, cost=Cost(linear=1.0))
    assert cheap.cap > 16
    assert cheap.fill > pack_cheapest(lengths, cost=dear).fill
    assert cost_of(cheap, Cost(linear=1.0)) < 31 * 16


def test_rows_do_not_grow_past_what_is_allowed() -> None:
    assert pack_cheapest([16] + [9] * 30, most=31, cost=Cost(linear=1.0)).cap == 16
    assert pack_cheapest([16] + [9] * 30, most=32, cost=Cost(linear=1.0)).cap == 32
    assert pack_cheapest([16], most=8).cap == 16


@pytest.mark.parametrize(
    ("count", "size", "edges"),
    [(5, 2, [0, 1, 3, 5]), (4, 2, [0, 2, 4]), (3, 0, [0, 1, 2, 3]), (0, 4, [0]), (3, 9, [0, 3])],
)
def test_runs_are_even(count: int, size: int, edges: list[int]) -> None:
    assert runs_of(count, size) == edges
