"""Prompts are grouped into forwards so that every call finds its own."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime.engine.prompts import PrefillBatch, bucket, plan_exact, plan_trimmed

PROMPTS = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=20).map(lambda p: np.array(p, np.int64)),
    max_size=40,
)


def check_every_call_finds_its_prompt(
    prompts: list[np.ndarray], batches: list[PrefillBatch]
) -> None:
    served = np.concatenate([batch.members for batch in batches] or [np.zeros(0, np.int64)])
    assert sorted(served.tolist()) == list(range(len(prompts)))
    for batch in batches:
        for member, row in zip(batch.members, batch.rows, strict=True):
            length = batch.lengths[row]
            assert np.array_equal(batch.tokens[row, :length], prompts[member])
            assert not batch.tokens[row, length:].any()


@settings(deadline=None)
@given(PROMPTS)
def test_exact_batches_have_one_height_and_widths_of_the_prompts_own(
    prompts: list[np.ndarray],
) -> None:
    batches = plan_exact(prompts, rows=4, max_length=20)
    check_every_call_finds_its_prompt(prompts, batches)
    for batch in batches:
        assert batch.tokens.shape[0] == len(batch.lengths) == 4
        assert batch.lengths.min() >= 1
        widths = {bucket(len(prompts[member]), 20) for member in batch.members.tolist()}
        assert widths == {batch.tokens.shape[1]}


@settings(deadline=None)
@given(PROMPTS, st.integers(1, 60))
def test_trimmed_batches_are_as_wide_as_their_longest_prompt_and_keep_the_budget(
    prompts: list[np.ndarray], budget: int
) -> None:
    batches = plan_trimmed(prompts, tokens=budget)
    check_every_call_finds_its_prompt(prompts, batches)
    for batch in batches:
        assert batch.tokens.shape[1] == batch.lengths.max()
        assert batch.tokens.size <= budget or len(batch.tokens) == 1


def test_equal_prompts_are_prefilled_once() -> None:
    prompts = [np.array([1, 2, 3]), np.array([4]), np.array([1, 2, 3])]
    (batch,) = plan_trimmed(prompts, tokens=100)
    assert batch.tokens.tolist() == [[4, 0, 0], [1, 2, 3]]
    assert batch.members.tolist() == [1, 0, 2]
    assert batch.rows.tolist() == [0, 1, 1]
    assert len(plan_exact(prompts, rows=2, max_length=64)) == 1


def test_a_bucket_is_a_power_of_two_within_the_longest_length() -> None:
    assert [bucket(n, 100) for n in (1, 8, 9, 16, 17, 64, 65, 100)] == [
        8, 8, 16, 16, 32, 64, 100, 100,
    ]  # fmt: skip
    assert bucket(3, 5) == 5
