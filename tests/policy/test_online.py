import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.policy import OnlinePacker, Packs
from tests.policy.plans import check_caps, check_whole

CAP = 20
SECOND_CAP = 8
sizes = st.lists(st.tuples(st.integers(0, CAP), st.integers(0, SECOND_CAP)), max_size=60)


def packs_of(*plans: Packs) -> list[list[int]]:
    return [packs.members(pack).tolist() for packs in plans for pack in range(len(packs))]


def packer(size: int, age_limit: int | None = None) -> OnlinePacker:
    return OnlinePacker(cap=CAP, second_cap=SECOND_CAP, open_packs=size, age_limit=age_limit)


def push(to: OnlinePacker, pairs: list[tuple[int, int]]) -> Packs:
    return to.push([pair[0] for pair in pairs], second=[pair[1] for pair in pairs])


@given(sizes, st.integers(1, 5))
def test_every_sample_goes_once_within_both_caps(pairs: list[tuple[int, int]], size: int) -> None:
    online = packer(size)
    plans = [push(online, pairs)]
    assert len(online.open) <= size
    check_caps(online.open)
    plans.append(online.flush())
    check_whole(plans, [pair[0] for pair in pairs])
    assert len(online.open) == 0


@given(sizes, st.integers(1, 5), st.integers(0, 60))
def test_how_a_stream_is_cut_into_pushes_changes_nothing(
    pairs: list[tuple[int, int]], size: int, cut: int
) -> None:
    whole, parts = packer(size, age_limit=7), packer(size, age_limit=7)
    at_once = packs_of(push(whole, pairs), whole.flush())
    assert at_once == packs_of(push(parts, pairs[:cut]), push(parts, pairs[cut:]), parts.flush())


@given(sizes, st.integers(0, 60))
def test_a_resumed_packer_packs_the_same_samples_together(
    pairs: list[tuple[int, int]], cut: int
) -> None:
    one, resumed = packer(4, age_limit=9), packer(4, age_limit=9)
    push(one, pairs[:cut])
    resumed.resume(one.open, pushed=one.pushed)
    first = packs_of(push(one, pairs[cut:]), one.flush())
    assert first == packs_of(push(resumed, pairs[cut:]), resumed.flush())
    assert one.pushed == resumed.pushed


@given(sizes, st.integers(1, 10))
def test_no_pack_stays_open_beyond_the_age_limit(
    pairs: list[tuple[int, int]], age_limit: int
) -> None:
    online = packer(50, age_limit=age_limit)
    for pair in pairs:
        push(online, [pair])
        still = online.open
        firsts = [int(still.members(pack).min()) for pack in range(len(still))]
        assert all(online.pushed - 1 - first < age_limit for first in firsts)


def test_a_sample_goes_to_the_tightest_pack_that_fits() -> None:
    online = OnlinePacker(cap=CAP, open_packs=3)
    online.push([11, 14, 12])
    online.push([5])
    assert packs_of(online.open) == [[0], [1, 3], [2]]
    assert packs_of(online.push([8])) == [[2, 4]]


def test_the_fullest_pack_closes_when_none_fits_and_all_are_open() -> None:
    online = OnlinePacker(cap=CAP, open_packs=2)
    assert packs_of(online.push([12, 15, 18])) == [[1]]


def test_only_a_fresh_packer_resumes() -> None:
    online = OnlinePacker(cap=CAP)
    online.push([3])
    with pytest.raises(ValueError, match="fresh"):
        online.resume(online.open, pushed=1)


def test_more_open_packs_fill_no_worse() -> None:
    lengths = np.random.default_rng(1).integers(1, CAP + 1, 4000)
    fills = []
    for size in (1, 4, 32):
        online = OnlinePacker(cap=CAP, open_packs=size)
        fills.append(online.push(lengths).fill)
    assert fills == sorted(fills)


def test_dropped_samples_keep_their_numbers_over_pushes() -> None:
    online = OnlinePacker(cap=CAP, over_long="drop")
    online.push([21, 5])
    assert [gone.index for gone in online.push([6, 22]).dropped] == [3]
    assert packs_of(online.flush()) == [[1, 2]]
