"""Packing and dealing as they went wrong elsewhere: over-full bins, empty ranks, means of means."""

import numpy as np
import pytest
from numpy.typing import NDArray

from flowgraph.runtime.policy import FILLER, OverLongError, Packs, deal, deal_packs, pack_lengths


@pytest.mark.parametrize(("lengths", "cap", "packs"), [([7] * 8, 8, 8), ([30720] * 16, 32768, 16)])
def test_samples_that_fit_only_alone_get_a_pack_each(
    lengths: list[int], cap: int, packs: int
) -> None:
    plan = pack_lengths(lengths, cap=cap)
    assert len(plan) == packs
    assert plan.tokens.max() <= cap


def test_an_over_long_sample_is_an_error_that_names_it() -> None:
    with pytest.raises(OverLongError, match=r"cap of 8 tokens: sample 'photo-17' \(12\)"):
        pack_lengths([3, 12], cap=8, ids=["photo-16", "photo-17"])


def test_an_over_long_sample_goes_by_the_declared_policy_and_is_counted() -> None:
    dropped = pack_lengths([3, 12], cap=8, over_long="drop", ids=["a", "b"])
    assert [(gone.ident, gone.reason) for gone in dropped.dropped] == [("b", "over-long")]
    truncated = pack_lengths([3, 12], cap=8, over_long="truncate", ids=["a", "b"])
    assert [(cut.ident, cut.kept) for cut in truncated.cut] == [("b", 8)]
    split = pack_lengths([3, 12], cap=8, over_long="split", ids=["a", "b"])
    assert [(cut.ident, cut.kept, cut.pieces) for cut in split.cut] == [("b", 12, 2)]
    for plan in (dropped, truncated, split):
        assert plan.tokens.max() <= 8


@pytest.mark.parametrize(
    ("samples", "counts"),
    [(9, [3, 2, 2, 2]), (5, [2, 1, 1, 1]), (4, [1] * 4), (3, [1, 1, 1, 0]), (0, [0] * 4)],
)
def test_shares_of_four_ranks_differ_by_at_most_one_and_the_rest_is_filler(
    samples: int, counts: list[int]
) -> None:
    dealt = deal(np.ones(samples), 4)
    assert sorted(dealt.counts.tolist(), reverse=True) == counts
    assert dealt.slots.shape == (4, max(1, counts[0]))  # filler work, never an empty rank
    assert (dealt.slots == FILLER).sum() == dealt.slots.size - samples


@pytest.mark.parametrize("ranks", range(2, 9))
def test_skewed_lengths_give_every_rank_the_same_number_of_micro_batches(ranks: int) -> None:
    lengths = [8192] * 3 + [4000] * 7 + [64] * 500 + [1]
    plan = pack_lengths(lengths, cap=8192)
    dealt = deal_packs(plan.tokens, ranks)
    # One collective a micro-batch: the rectangle is the promise, fillers included.
    assert dealt.slots.shape == (ranks, -(-len(plan) // ranks))
    assert sorted(int(pack) for row in dealt for pack in row) == list(range(len(plan)))


Floats = NDArray[np.float32]
LENGTHS = [2, 2, 2, 2, 16, 16, 16, 16]


def token_gradients(masked: int | None = None) -> list[Floats]:
    """Per sample, each token's gradient float32[tokens, 8]; short samples pull another way."""
    random = np.random.default_rng(0)
    gradients = []
    for sample, length in enumerate(LENGTHS):
        pull = np.where(length == 2, np.arange(8) - 3.5, 1.0)
        tokens = (random.normal(0, 0.1, (length, 8)) + pull).astype(np.float32)
        gradients.append(tokens * np.float32(sample != masked))
    return gradients


def micro_batch(plan: Packs, pack: int, gradients: list[Floats]) -> Floats:
    """The unnormalised sum over a pack's tokens; a filler pack adds exactly zero."""
    total = np.zeros(8, np.float32)
    if pack != FILLER:
        for sample in plan.members(pack).tolist():
            total += gradients[sample].sum(axis=0, dtype=np.float32)
    return total


@pytest.mark.parametrize(("cap", "ranks"), [(36, 1), (36, 2), (16, 3), (72, 4)])
@pytest.mark.parametrize("masked", [None, 4])
def test_any_split_and_deal_gives_the_full_gradient_when_divided_once(
    cap: int, ranks: int, masked: int | None
) -> None:
    gradients = token_gradients(masked)
    count = sum(LENGTHS) - (LENGTHS[masked] if masked is not None else 0)
    full = np.concatenate(gradients).sum(axis=0, dtype=np.float32) / np.float32(count)
    plan = pack_lengths(LENGTHS, cap=cap)
    dealt = deal_packs(plan.tokens, ranks)
    total = np.zeros(8, np.float32)
    for row in dealt.slots.tolist():
        for pack in row:
            total += micro_batch(plan, pack, gradients)
    relative = np.linalg.norm(total / np.float32(count) - full) / np.linalg.norm(full)
    assert relative < 1e-6


def test_a_mean_of_means_is_another_gradient_so_the_test_above_can_fail() -> None:
    gradients = token_gradients()
    full = np.concatenate(gradients).mean(axis=0)
    halves = (np.concatenate(gradients[:4]), np.concatenate(gradients[4:]))
    wrong = (halves[0].mean(axis=0) + halves[1].mean(axis=0)) / 2
    cosine = full @ wrong / (np.linalg.norm(full) * np.linalg.norm(wrong))
    assert np.linalg.norm(wrong) > 1.2 * np.linalg.norm(full)
    assert cosine < 0.9
