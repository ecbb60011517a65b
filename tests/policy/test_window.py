import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.policy import OverLongError, Packs, WindowPacker
from tests.policy.plans import check_whole

CAP = 20
streams = st.lists(st.lists(st.integers(0, CAP), max_size=12), max_size=10)


def columns(plans: list[Packs]) -> list[list[int]]:
    return [packs.order.tolist() + packs.boundaries.tolist() for packs in plans]


@given(streams, st.integers(0, 3), st.integers(0, 4))
def test_every_sample_goes_once_and_in_time(
    stream: list[list[int]], age_limit: int, hold: int
) -> None:
    packer = WindowPacker(cap=CAP, age_limit=age_limit, hold=hold)
    arrived = np.repeat(np.arange(len(stream)), [len(window) for window in stream])
    plans = []
    for now, window in enumerate(stream):
        plans.append(packer.push(window))
        assert (now - arrived[plans[-1].order] <= age_limit).all()
        assert packer.held.length.sum() <= hold * CAP
    plans.append(packer.flush())
    check_whole(plans, [length for window in stream for length in window])
    assert packer.held.sample.size == 0


@given(streams, st.integers(0, 9))
def test_a_packer_rebuilt_from_its_held_state_goes_on_alike(
    stream: list[list[int]], cut: int
) -> None:
    one = WindowPacker(cap=CAP)
    other = WindowPacker(cap=CAP)
    for number, window in enumerate(stream):
        if number == cut:
            other = WindowPacker(cap=CAP, held=other.held)
        assert columns([one.push(window)]) == columns([other.push(window)])
    assert columns([one.flush()]) == columns([other.flush()])


def test_a_pack_that_is_full_of_images_goes_at_once() -> None:
    packer = WindowPacker(cap=CAP, second_cap=4)
    assert len(packer.push([3], second=[4])) == 1
    assert len(packer.push([3], second=[3])) == 0


def test_a_refused_window_leaves_the_packer_as_it_was() -> None:
    packer = WindowPacker(cap=CAP)
    packer.push([5, 6])
    with pytest.raises(OverLongError, match=r"sample 3 \(21\)"):
        packer.push([4, 21])
    assert len(packer.push([])) == 0
    check_whole([packer.flush()], [5, 6])


def test_carrying_over_fills_better_than_flushing() -> None:
    lengths = np.random.default_rng(0).integers(1, CAP + 1, 3000)
    packer = WindowPacker(cap=CAP)
    carried = sum(len(packer.push(w)) for w in np.split(lengths, 100)) + len(packer.flush())
    flushing = WindowPacker(cap=CAP, age_limit=0)
    flushed = sum(len(flushing.push(window)) for window in np.split(lengths, 100))
    assert carried < flushed


def test_senseless_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="age_limit"):
        WindowPacker(cap=CAP, age_limit=-1)


def test_dropped_samples_keep_their_numbers_over_windows() -> None:
    packer = WindowPacker(cap=CAP, over_long="drop", age_limit=0)
    assert packer.push([21, 5]).order.tolist() == [1]
    later = packer.push([6, 22])
    assert later.order.tolist() == [2]
    assert [gone.index for gone in later.dropped] == [3]
