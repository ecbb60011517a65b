"""Samples that share a packed row do not see one another."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from flowgraph.models import attention, decoder_lm
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.policy import Cost, Packs, pack_lengths
from flowgraph.runtime.trainer.outputs import Outputs
from tests.runtime.trainer.graphs import gradient_of, item, rank_of, rows, text_plan, toy

SEEN: list[Tensor] = []


def loss_of_last_row(
    outputs: Outputs, fields: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Of the second sample only; the first one's tokens are run and count nothing."""
    last = fields["sample"] == 1
    SEEN.append(outputs.logprobs[last].detach())
    return -(outputs.logprobs * last).sum(), {}


def outcome(tokens_of_a: Any) -> tuple[Tensor, Tensor]:
    """B's log-probs and gradient in a row that it shares with A."""
    loss = toy("weighted")
    plan = text_plan(
        loss.__class__(module=__name__, qualname="loss_of_last_row"), pack={"tokens": 64}
    )
    tokens = [tokens_of_a, np.arange(9) % 7]
    batch: Batch = rows(0, [14, 9], tokens=tokens)
    SEEN.clear()
    rank = rank_of(plan)
    result = rank.train("train", item("train", {"rows": [batch]}))
    return SEEN[0], gradient_of(rank, [result])


def changes_of_b() -> tuple[bool, bool]:
    """Whether B's log-probs, and its gradient, change with A's tokens."""
    first = np.random.default_rng(1).integers(0, 20, 14)
    before, after = outcome(first), outcome((first + 3) % 20)
    return not torch.equal(before[0], after[0]), not torch.equal(before[1], after[1])


@pytest.fixture(autouse=True)
def _one_shared_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed rows as long as allowed, so that A and B share one."""

    def longest(lengths: Any, *, most: int, cost: Cost) -> Packs:
        return pack_lengths(lengths, cap=most)

    monkeypatch.setattr("flowgraph.runtime.trainer.packing.pack_cheapest", longest)


def test_a_samples_neighbour_in_a_packed_row_changes_nothing_of_it(exact_process: None) -> None:
    shapes = []

    def watched(segment_ids: Tensor, *, causal: bool) -> Tensor:
        shapes.append(tuple(segment_ids.shape))
        return attention.segment_mask(segment_ids, causal=causal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_lm, "segment_mask", watched)
        assert changes_of_b() == (False, False)
    assert {rows for rows, _ in shapes} == {1}, "A and B do not share a row: nothing was tested"


def test_positions_reset_without_isolation_would_be_noticed(
    exact_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_mask(segment_ids: Tensor, *, causal: bool) -> Tensor:
        length = segment_ids.shape[1]
        return torch.ones(len(segment_ids), 1, length, length, dtype=torch.bool).tril()

    monkeypatch.setattr(decoder_lm, "segment_mask", open_mask)
    assert changes_of_b() == (True, True)
