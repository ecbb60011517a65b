import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.policy import Cost, pack_lengths

LENGTHS = np.array([128, 300, 512, 1024, 2048, 3000, 4096, 8192])


def test_a_fit_recovers_the_cost_that_made_the_timings() -> None:
    true = Cost(linear=3e-6, quadratic=4e-10, constant=2e-4)
    fitted = Cost.fit(LENGTHS, true.of(LENGTHS))
    assert fitted.linear == pytest.approx(true.linear, rel=1e-6)
    assert fitted.quadratic == pytest.approx(true.quadratic, rel=1e-6)
    assert fitted.constant == pytest.approx(true.constant, rel=1e-6)


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=8))
def test_a_fit_never_makes_a_longer_sample_cheaper(seconds: list[float]) -> None:
    fitted = Cost.fit(LENGTHS[: len(seconds)], seconds)
    assert min(fitted.linear, fitted.quadratic, fitted.constant) >= 0
    assert (np.diff(fitted.of(np.arange(0, 9000, 100))) >= 0).all()


def test_one_timing_gives_a_cost_through_it() -> None:
    assert Cost.fit([100], [0.5]).of([100])[0] == pytest.approx(0.5)


def test_timings_without_a_quadratic_part_fit_without_one() -> None:
    fitted = Cost.fit(LENGTHS, LENGTHS * 1e-6 + 1e-3)
    assert fitted.quadratic * 8192**2 < 1e-9
    assert fitted.linear == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("lengths", "seconds"),
    [([], []), ([1, 2], [1.0]), ([-1], [1.0]), ([1], [0.0]), ([1], [float("nan")])],
)
def test_unusable_timings_are_refused(lengths: list[int], seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="expects"):
        Cost.fit(lengths, seconds)


def test_a_pack_costs_what_its_samples_cost_and_absent_images_cost_nothing() -> None:
    cost = Cost(linear=2.0, quadratic=0.5, constant=3.0)
    packs = pack_lengths([4, 3, 2, 6], cap=7, second=[2, 0, 1, 0])
    for pack, value in enumerate(cost.of_packs(packs)):
        here = slice(packs.boundaries[pack], packs.boundaries[pack + 1])
        assert value == pytest.approx(cost.of(packs.lengths[here]).sum())
    encoder = cost.of_packs(packs, packs.second)
    assert encoder.sum() == pytest.approx(cost.of([2, 1]).sum())


def test_pack_costs_refuse_lengths_of_another_plan() -> None:
    packs = pack_lengths([4, 3], cap=7)
    with pytest.raises(ValueError, match="expects"):
        Cost(linear=1.0).of_packs(packs, [1, 2, 3])
