"""From rewards to advantages: against the formulas, and whatever the groups beside."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.algorithms import grpo, ppo, rloo

REWARDS = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.25])
OFFSETS = np.array([0, 4, 6, 6, 7])


def test_grpo_centres_and_scales_each_group() -> None:
    credit = grpo.advantages(REWARDS[:4], OFFSETS[:2], epsilon=0.0)
    assert credit.tolist() == [1.0, -1.0, -1.0, 1.0]
    assert credit.dtype == np.float32


def test_grpo_without_scaling_only_centres() -> None:
    credit = grpo.advantages(REWARDS, OFFSETS, scale_by_std=False)
    assert credit.tolist() == [0.5, -0.5, -0.5, 0.5, 0.0, 0.0, 0.0]


def test_rloo_takes_the_mean_of_the_others() -> None:
    rewards = np.array([3.0, 0.0, 0.0, 7.0])
    credit = rloo.advantages(rewards, np.array([0, 3, 4]))
    assert credit.tolist() == [3.0, -1.5, -1.5, 0.0]


def test_ppo_whitens_each_group() -> None:
    credit = ppo.advantages(REWARDS, OFFSETS)
    assert credit.tolist() == pytest.approx([1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("credit", [grpo.advantages, rloo.advantages, ppo.advantages])
def test_equal_rewards_earn_nothing(credit: object) -> None:
    assert callable(credit)
    assert credit(np.full(4, 0.1), np.array([0, 4])).tolist() == [0.0] * 4


@pytest.mark.parametrize("credit", [grpo.advantages, rloo.advantages, ppo.advantages])
def test_a_step_without_rows_earns_an_empty_array(credit: object) -> None:
    assert callable(credit)
    assert credit(np.zeros(0), np.array([0, 0])).shape == (0,)


groups = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=17), min_size=1, max_size=5)


def offsets_of(rows: list[list[float]]) -> npt.NDArray[np.int64]:
    return np.cumsum([0, *map(len, rows)])


@pytest.mark.parametrize("credit", [grpo.advantages, rloo.advantages, ppo.advantages])
@given(rows=groups)
def test_a_groups_bits_do_not_depend_on_the_groups_beside_it(
    credit: object, rows: list[list[float]]
) -> None:
    assert callable(credit)
    together = credit(np.concatenate(rows), offsets_of(rows))
    apart = [credit(np.array(row), np.array([0, len(row)])) for row in rows]
    assert together.tobytes() == np.concatenate(apart).tobytes()
