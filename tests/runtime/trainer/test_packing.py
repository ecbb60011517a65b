"""Micro-batches hold every counted token once, with the states that predict it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.runtime.column import bounds_of
from flowgraph.runtime.policy import MASKED_ROW, Cost, OverLongError
from flowgraph.runtime.trainer.micro_batch import MicroBatch
from flowgraph.runtime.trainer.packing import (
    PackedItem,
    PackLimits,
    Pieces,
    cut_pieces,
    effective_mask,
    pack_pieces,
)

Packed = tuple[Pieces, Any, Any, PackedItem]
CPU = torch.device("cpu")


def masked(attention: float) -> Cost:
    """Attention costs as much as all else in rows of this length."""
    return Cost(linear=1.0, quadratic=1.0 / attention)


def packed(
    tokens: list[list[int]],
    masks: list[list[int]] | None = None,
    *,
    visual: list[int] | None = None,
    cost: Cost = MASKED_ROW,
    **limits: Any,
) -> Packed:
    """Pieces, flat tokens, effective mask, what is run."""
    offsets = bounds_of(np.array([len(row) for row in tokens], np.int64))
    flat = np.array([token for row in tokens for token in row], np.int64)
    given = None
    if masks is not None:
        given = np.array([value for row in masks for value in row], np.float32)
    seen = np.zeros(len(tokens), np.int64) if visual is None else np.array(visual, np.int64)
    allowed = PackLimits(**{"micro_batch": 64, **limits})
    pieces = cut_pieces(offsets, allowed, ids=np.arange(len(tokens)) + 100, visual=seen)
    mask = effective_mask(given, flat.size, pieces)
    item = pack_pieces(pieces, flat, offsets, mask, allowed, visual=seen, device=CPU, cost=cost)
    return pieces, flat, mask, item


def run(*arguments: Any, **named: Any) -> tuple[MicroBatch, ...]:
    return packed(*arguments, **named)[3].micro_batches


def run_tokens(micro: MicroBatch) -> list[int]:
    """What is run forward, without padding."""
    found: list[int] = micro.tokens[micro.segment_ids > 0].tolist()
    return found


def check(pieces: Pieces, flat: Any, mask: Any, item: PackedItem) -> None:
    """Every counted token is selected once, and predicted from its own piece's past."""
    start_of = np.zeros(flat.size, np.int64)
    for begin, end in zip(pieces.begin, pieces.end, strict=True):
        start_of[begin:end] = begin
    seen = []
    for micro in item.micro_batches:
        ids, within, segment = (
            tensor.flatten().tolist()
            for tensor in (micro.tokens, micro.positions, micro.segment_ids)
        )
        for selected, state in zip(micro.selected, micro.state, strict=True):
            token = micro.taken[selected]
            seen.append(int(token))
            first = state - within[state]
            assert ids[first : state + 1] == flat[start_of[token] : token].tolist()
            assert first // micro.tokens.shape[1] == state // micro.tokens.shape[1]
            assert set(segment[first : state + 1]) == {segment[state]} != {0}
    assert sorted(seen) == np.flatnonzero(mask).tolist()
    check_places(flat, item)


def check_places(flat: Any, item: PackedItem) -> None:
    """Tokens that are run stand where `places` says; each position is one token's."""
    places = item.places(np.arange(flat.size))
    for micro in item.micro_batches:
        here, at = micro.within(places)
        assert micro.tokens.flatten()[torch.from_numpy(at)].tolist() == flat[here].tolist()
        assert len(set(at.tolist())) == at.size == int((micro.segment_ids > 0).sum())


ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12), min_size=1, max_size=12
)


@given(ROWS, st.sampled_from([8, 24, 64]), st.sampled_from([1.0, 512.0]))
def test_every_counted_token_is_predicted_once_from_its_own_past(
    rows: list[list[tuple[int, int]]], micro_batch: int, attention: float
) -> None:
    tokens = [[token for token, _ in row] for row in rows]
    masks = [[mask for _, mask in row] for row in rows]
    cost = masked(attention)
    check(*packed(tokens, masks, micro_batch=micro_batch, cost=cost))


@given(ROWS, st.sampled_from(["drop", "truncate", "split"]))
def test_every_counted_token_of_cut_rows_is_predicted_once(
    rows: list[list[tuple[int, int]]], over_long: str
) -> None:
    tokens = [[token for token, _ in row] for row in rows]
    check(*packed(tokens, longest=5, over_long=over_long))


def test_rows_that_need_the_same_tokens_run_once() -> None:
    # What is needed ends before the last counted token: all three need 1, 2.
    (micro,) = run([[1, 2, 3], [1, 2, 4], [1, 2, 3, 9]], [[0, 0, 1]] * 2 + [[0, 0, 1, 0]])
    assert run_tokens(micro) == [1, 2]
    assert micro.taken.size == 10
    assert micro.state.tolist() == [1, 1, 1]


def test_equal_rows_with_images_run_apart() -> None:
    (micro,) = run([[1, 2, 3], [1, 2, 3]], visual=[1, 1])
    assert run_tokens(micro) == [1, 2, 1, 2]


def test_rows_without_targets_are_in_no_micro_batch() -> None:
    assert run([[1, 2], [3]], [[1, 0], [1]]) == ()
    assert run([[], []]) == ()
    assert packed([[], []])[3].places(np.array([0])).tolist() == [-1]


def test_short_rows_share_a_packed_row_only_where_that_is_cheaper() -> None:
    # 16 tokens are needed of the first row, 9 of the others: 16 + 9, 3 x 9, 3 x 9, 3 x 9.
    tokens = [[n, *range(length)] for n, length in enumerate([16] + [9] * 10)]
    (many,) = run(tokens, micro_batch=256, cost=masked(1e9))
    assert many.tokens.shape == (4, 32)
    (few,) = run(tokens, micro_batch=256, cost=masked(1.0))
    assert few.tokens.shape == (11, 16)


def test_micro_batches_keep_to_their_positions_unless_one_row_has_more() -> None:
    tokens = [[n] * 9 for n in range(10)]
    assert [micro.tokens.numel() for micro in run(tokens, micro_batch=20)] == [16] * 5
    assert [micro.tokens.shape[1] for micro in run([[1] * 30], micro_batch=20)] == [29]


def test_the_first_token_of_a_piece_counts_nothing() -> None:
    assert effective_mask_of([[1, 1, 1], [1, 1]]) == [0, 1, 1, 0, 1]
    assert effective_mask_of([[1, 1, 1], [1, 1]], longest=2, over_long="split") == [0, 1, 0, 0, 1]
    assert effective_mask_of([[1, 1, 1], [1, 1]], longest=2, over_long="drop") == [0, 0, 0, 0, 1]


def effective_mask_of(masks: list[list[int]], **limits: Any) -> list[float]:
    return list(packed([[0] * len(row) for row in masks], masks, **limits)[2])


def test_an_over_long_row_goes_by_the_declared_policy() -> None:
    rows = [[1, 2, 3, 4, 5], [6, 7]]
    with pytest.raises(OverLongError, match=r"sample 100 \(5\)"):
        packed(rows, longest=4)
    assert packed(rows, longest=4, over_long="drop")[0].dropped == ((0, "over-long"),)
    assert packed(rows, longest=4, over_long="truncate")[0].end.tolist() == [4, 7]
    assert packed(rows, longest=4, over_long="split")[0].begin.tolist() == [0, 4, 5]


def test_a_row_with_images_is_never_cut() -> None:
    with pytest.raises(OverLongError, match="would cut samples with images: sample 100"):
        packed([[1, 2, 3, 4, 5]], visual=[2], longest=4, over_long="split")
