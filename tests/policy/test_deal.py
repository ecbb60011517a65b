import hashlib
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime.policy import FILLER, Deal, deal, deal_packs, heaviest_bound
from tests.policy.test_pack import scrambled

costs_lists = st.lists(st.floats(0, 1e6), max_size=40)


def check_deal(dealt: Deal, count: int, ranks: int) -> None:
    """Each item once, counts differ by at most one, fillers only at the end of a row."""
    assert dealt.slots.shape[0] == ranks
    placed = [int(item) for row in dealt for item in row] + dealt.carried.tolist()
    assert sorted(placed) == list(range(count))
    assert dealt.counts.max() - dealt.counts.min() <= 1
    assert dealt.slots.shape[1] == max(1, dealt.counts.max())
    for row, size in zip(dealt.slots, dealt.counts.tolist(), strict=True):
        assert (row[size:] == FILLER).all()


def least_maximum(costs: list[float], ranks: int) -> float:
    """Brute force over all deals whose counts differ by at most one."""
    width = -(-len(costs) // ranks)
    short = ranks * width - len(costs)
    sizes = [width] * (ranks - short) + [width - 1] * short
    best = float("inf")
    for order in permutations(costs):
        at, most = 0, 0.0
        for size in sizes:
            most = max(most, sum(order[at : at + size]))
            at += size
        best = min(best, most)
    return best


@given(costs_lists, st.integers(1, 9), st.booleans())
def test_counts_are_equal_and_every_item_is_dealt_once(
    costs: list[float], ranks: int, both: bool
) -> None:
    second = costs[::-1] if both else None
    check_deal(deal(costs, ranks, second=second), len(costs), ranks)


@given(costs_lists, st.integers(1, 9), st.sampled_from(["filler", "carry"]))
def test_every_rank_gets_the_same_number_of_micro_batches(
    costs: list[float], ranks: int, remainder: str
) -> None:
    dealt = deal_packs(costs, ranks, remainder="carry" if remainder == "carry" else "filler")
    check_deal(dealt, len(costs), ranks)
    if remainder == "carry" and len(costs) >= ranks:
        assert (dealt.slots != FILLER).all()
        assert dealt.carried.size == len(costs) % ranks


@given(costs_lists, st.integers(1, 9))
def test_loads_are_the_sums_of_what_was_dealt(costs: list[float], ranks: int) -> None:
    dealt = deal(costs, ranks, second=costs[::-1])
    for items, load in zip(dealt, dealt.loads, strict=True):
        assert load[0] == pytest.approx(sum(costs[i] for i in items.tolist()))
        assert load[1] == pytest.approx(sum(costs[::-1][i] for i in items.tolist()))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(2, 3))
def test_few_items_are_dealt_nearly_as_evenly_as_brute_force_can(
    costs: list[int], ranks: int
) -> None:
    values = [float(cost) for cost in costs]
    assert deal(values, ranks).loads.max() <= 4 / 3 * least_maximum(values, ranks) + 1e-9


def test_an_even_deal_that_exists_is_found_by_swapping() -> None:
    # Rounds alone give 8 + 5 + 4 against 7 + 6 + 3, or worse.
    dealt = deal([8, 7, 6, 5, 4, 3, 2, 1], 2)
    assert dealt.loads.ravel().tolist() == [18, 18]


def test_two_costs_are_balanced_at_once() -> None:
    random = np.random.default_rng(0)
    first, second = random.lognormal(0, 0.5, 960), random.lognormal(0, 0.5, 960)
    dealt = deal(first, 64, second=second)
    assert dealt.imbalance[0] <= 1.01
    assert dealt.imbalance[1] <= 1.02
    assert deal(first, 64).imbalance[0] <= 1.002


def test_no_deal_beats_the_bound_of_the_heaviest_item() -> None:
    costs = [100.0] + [1.0] * 15
    bound = heaviest_bound(costs, 4)
    assert bound == pytest.approx(103 / (115 / 4))
    assert deal(costs, 4).imbalance[0] == pytest.approx(bound)


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 5))
def test_groups_stay_whole_and_their_numbers_are_equal(labels: list[int], ranks: int) -> None:
    costs = [float(1 + i % 7) for i in range(len(labels))]
    dealt = deal(costs, ranks, groups=labels)
    owners = {label: set[int]() for label in labels}
    for rank, items in enumerate(dealt):
        for item in items.tolist():
            owners[labels[item]].add(rank)
    assert all(len(ranks_of) == 1 for ranks_of in owners.values())
    assert sorted(int(i) for row in dealt for i in row) == list(range(len(labels)))
    held = [sum(rank in ranks_of for ranks_of in owners.values()) for rank in range(ranks)]
    assert max(held) - min(held) <= 1


def test_groups_of_one_size_keep_the_counts_of_items_equal() -> None:
    labels = [f"task {i // 4}" for i in range(64)]
    dealt = deal(np.arange(64.0), 8, groups=labels)
    assert dealt.counts.tolist() == [8] * 8
    assert dealt.imbalance[0] <= 1.01


def test_the_deal_is_the_same_on_every_machine() -> None:
    dealt = deal(scrambled(1000, 8192), 16, second=scrambled(2000, 8192)[1000:])
    digest = hashlib.sha256(dealt.slots.astype("<i8").tobytes()).hexdigest()[:16]
    assert digest == "a43591764db755d3"


def test_rows_are_longest_first_so_that_ranks_run_like_lengths_together() -> None:
    costs = np.array(scrambled(64, 100), dtype=np.float64)
    for row in deal(costs, 8).slots:
        assert (np.diff(costs[row]) <= 0).all()


@pytest.mark.parametrize(
    ("costs", "ranks", "message"),
    [
        ([1.0], 0, "ranks >= 1"),
        ([1.0, -2.0], 1, "item 1"),
        ([float("nan")], 1, "item 0"),
        ([[1.0]], 1, "vectors"),
    ],
)
def test_malformed_costs_are_refused(costs: list[float], ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deal(costs, ranks)


def test_unknown_remainders_and_missing_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="remainder"):
        deal_packs([1.0], 1, remainder="drop")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="group for each"):
        deal([1.0, 2.0], 1, groups=["a"])
