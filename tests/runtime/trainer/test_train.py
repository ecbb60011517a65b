"""The gradient of a step is that of its samples, however they were cut into work."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowgraph.ir.errors import GraphError, InternalError, RunFailed
from flowgraph.ir.plan import Plan
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.trainer.interface import UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from tests.runtime.trainer.graphs import (
    difference,
    gradient_of,
    item,
    played_plan,
    rank_of,
    rows,
    text_plan,
    toy,
)

WEIGHTED = toy("weighted", entropy=0.1)
P4_LENGTHS = [2, 2, 2, 2, 16, 16, 16, 16]


def trained(plan: Plan, *items: list[Batch], **changes: Any) -> Tensor:
    """The gradient after training on items of these units."""
    rank, results, first = rank_of(plan, **changes), [], 0
    for number, parts in enumerate(items):
        units = range(first, first + len(parts))
        first += len(parts)
        results.append(
            rank.train("train", item("train", {"rows": parts}, units=units, number=number))
        )
    return gradient_of(rank, results)


def one_by_one(plan: Plan, batch: Batch) -> Tensor:
    """The same gradient by plain autograd: each row alone, unpacked, its log-softmax in full."""
    rank = rank_of(plan)
    module: Any = rank.module
    total, weight = torch.zeros(()), 0.0
    for row in batch.to_rows():
        tokens = torch.from_numpy(row["tokens"].copy()).unsqueeze(0)
        positions = torch.arange(tokens.shape[1]).unsqueeze(0)
        hidden = module(tokens, positions, torch.ones_like(tokens, dtype=torch.int32))
        logprobs = module.logits(hidden).log_softmax(-1)[0, :-1]
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        mask = torch.from_numpy(row["loss_mask"].copy())[1:]
        taken = logprobs.gather(-1, tokens[0, 1:, None])[:, 0]
        total = total - ((row["advantage"] * taken + 0.1 * entropy) * mask).sum()
        weight += float(mask.sum())
    (total / weight).backward()  # type: ignore[no-untyped-call]
    return rank.flat_gradient()


def test_the_gradient_equals_plain_autograd_over_rows_alone() -> None:
    plan = text_plan(WEIGHTED)
    batch = rows(0, [5, 9, 3, 12, 1, 7, 9])
    assert difference(trained(plan, [batch]), one_by_one(plan, batch)) < 1e-5


def test_any_split_of_a_batch_gives_the_whole_batchs_gradient() -> None:
    plan = text_plan(WEIGHTED)
    batch = rows(1, P4_LENGTHS)
    whole = trained(plan, [batch])
    for edges in ([0, 4, 8], [0, 1, 8], [0, 2, 3, 5, 8], list(range(9))):
        parts = [batch.slice(a, b) for a, b in pairwise(edges)]
        assert difference(trained(plan, *[[part] for part in parts]), whole) < 1e-6, edges
        assert difference(trained(plan, parts), whole) < 1e-6, edges
        assert difference(trained(text_plan(WEIGHTED, micro_batch=16), parts), whole) < 1e-6


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 14), min_size=2, max_size=9),
    st.sets(st.integers(1, 8)),
    st.sampled_from([8, 32, 4096]),
)
def test_any_split_of_any_batch_gives_its_gradient(
    lengths: list[int], cuts: set[int], micro_batch: int
) -> None:
    batch = rows(len(lengths), [*lengths, 6])
    edges = sorted({0, batch.rows} | {cut for cut in cuts if cut < batch.rows})
    parts = [batch.slice(a, b) for a, b in pairwise(edges)]
    whole = trained(text_plan(WEIGHTED), [batch])
    split = trained(text_plan(WEIGHTED, micro_batch=micro_batch), *[[part] for part in parts])
    assert difference(split, whole) < 1e-6


def test_an_item_without_targets_adds_exactly_nothing() -> None:
    plan, batch = text_plan(WEIGHTED), rows(2, [6, 8])
    silent = rows(3, [5, 7], loss_mask=[np.zeros(5), np.zeros(7)])
    expected = trained(plan, [batch])
    assert torch.equal(trained(plan, [batch], [silent]), expected)
    assert torch.equal(trained(plan, [silent], [batch]), expected)
    result = rank_of(plan).train("train", item("train", {"rows": [silent]}))
    assert result.weights == {0: 0.0}
    assert result.sums["loss"] == result.sums["tokens"] == 0.0


def test_rows_that_repeat_count_as_often_as_they_stand_there() -> None:
    plan = text_plan(WEIGHTED)
    tokens = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4], [1, 2, 3, 4]]
    batch = rows(4, [4] * 4, tokens=tokens)
    assert difference(trained(plan, [batch]), one_by_one(plan, batch)) < 1e-5


def test_results_carry_each_units_weight_and_the_sums() -> None:
    batch = rows(5, [6, 3, 9])
    result = rank_of(text_plan()).train(
        "train", item("train", {"rows": [batch.slice(0, 2), batch.slice(2, 3)]}, units=[4, 9])
    )
    # A third of a row is prompt; the rest counts.
    assert result.weights == {4: 4.0 + 2.0, 9: 6.0}
    assert result.sums["tokens"] == 12.0
    assert result.sums["rows"] == 3.0
    assert result.sums["reward"] == pytest.approx(batch["reward"].values.sum())
    assert result.metrics["loss"] == (result.sums["loss"], 12.0)
    assert result.metrics["reward"] == (result.sums["reward"], 3.0)
    assert 0.0 < result.sums["entropy"] < 12 * np.log(23)
    assert not result.gradients


def test_log_probs_are_of_the_temperature_that_the_agent_sampled_at() -> None:
    batch = rows(6, [8, 5])
    for temperature in (1.0, 2.5):
        rank = rank_of(played_plan(temperature))
        module: Any = rank.module
        expected = 0.0
        for row in batch.to_rows():
            tokens = torch.from_numpy(row["tokens"].copy()).unsqueeze(0)
            positions = torch.arange(tokens.shape[1]).unsqueeze(0)
            hidden = module(tokens, positions, torch.ones_like(tokens, dtype=torch.int32))
            logprobs = (module.logits(hidden) / temperature).log_softmax(-1)[0, :-1]
            taken = logprobs.gather(-1, tokens[0, 1:, None])[:, 0]
            mask = torch.from_numpy(row["loss_mask"].copy())[1:]
            expected -= float((taken.detach() * mask).sum())
        result = rank.train("train", item("train", {"play.solver": [batch]}))
        assert result.sums["loss"] == pytest.approx(expected, rel=1e-5)


def test_rows_sampled_at_temperature_zero_are_refused() -> None:
    with pytest.raises(GraphError, match="agent 'solver': samples at temperature 0"):
        rank_of(played_plan(0.0)).train("train", item("train", {"play.solver": [rows(6, [8])]}))


def test_an_update_without_samples_moves_the_version_only() -> None:
    rank = rank_of(text_plan())
    batch = rows(7, [6, 6])
    rank.train("train", item("train", {"rows": [batch]}))
    rank.update(UpdateOrder(step=0, part=0, divisor=8.0))
    before, version = rank.weights_digest(), rank.version
    assert rank.update(UpdateOrder(step=1, part=0, divisor=0.0))["grad_norm"] == 0.0
    assert rank.version == version + 1
    assert rank.weights_digest() == before
    rank.train("train", item("train", {"rows": [batch]}, step=2))
    rank.update(UpdateOrder(step=2, part=0, divisor=8.0))
    again = rank_of(text_plan())
    for step in range(2):
        again.train("train", item("train", {"rows": [batch]}, step=step))
        again.update(UpdateOrder(step=step, part=0, divisor=8.0))
    assert rank.weights_digest() == again.weights_digest()


def test_gradients_are_clipped_to_the_declared_norm() -> None:
    rank = rank_of(text_plan(clip=0.25))
    result = rank.train("train", item("train", {"rows": [rows(8, [9, 9])]}))
    figures = rank.update(UpdateOrder(step=0, part=0, divisor=sum(result.weights.values())))
    assert figures["grad_norm"] > 0.25
    assert float(rank.flat_gradient().norm()) == pytest.approx(0.25, rel=1e-5)


def test_the_rate_follows_the_schedule_over_steps_and_parts() -> None:
    plan = text_plan(schedule={"name": "linear_decay", "last": 0.5}, updates=2)
    rank = rank_of(plan)
    rates = [
        rank.update(UpdateOrder(step=step, part=part, divisor=0.0))["lr"]
        for step in (0, 5, 7)
        for part in (0, 1)
    ]
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.009, 0.006, 0.005])


def test_only_what_is_declared_trainable_moves() -> None:
    rank = rank_of(text_plan(trainable=("blocks.0.*",)))
    before = {name: tensor.clone() for name, tensor in rank.module.named_parameters()}
    rank.train("train", item("train", {"rows": [rows(9, [9, 9])]}))
    rank.update(UpdateOrder(step=0, part=0, divisor=12.0))
    for name, tensor in rank.module.named_parameters():
        assert torch.equal(tensor, before[name]) != name.startswith("blocks.0."), name


def test_weights_that_are_published_load_elsewhere_and_are_checked() -> None:
    rank, other = rank_of(text_plan()), rank_of(text_plan())
    rank.train("train", item("train", {"rows": [rows(9, [9, 9])]}))
    rank.update(UpdateOrder(step=0, part=0, divisor=12.0))
    flat, digest = rank.publish()
    other.load(flat.numpy(), digest)
    assert other.weights_digest() == rank.weights_digest()
    with pytest.raises(RunFailed, match="digest"):
        other.load(flat.numpy(), "0" * 32)


def test_over_long_rows_that_were_dropped_are_named() -> None:
    plan = text_plan(pack={"tokens": 8, "over_long": "drop"})
    batch = rows(10, [6, 20, 7], first=40)
    result = rank_of(plan).train("train", item("train", {"rows": [batch]}))
    assert result.dropped == ((41, "over-long"),)
    kept = rank_of(plan).train("train", item("train", {"rows": [batch.take([0, 2])]}))
    assert result.weights == kept.weights
    assert result.sums["loss"] == pytest.approx(kept.sums["loss"], rel=1e-6)


def test_an_over_long_row_fails_with_the_samples_id_unless_declared() -> None:
    rank = rank_of(text_plan(pack={"tokens": 8}))
    with pytest.raises(StageFailed, match=r"stage 'learn': over the cap of 8 tokens: sample 41"):
        rank.train("train", item("train", {"rows": [rows(10, [6, 20], first=40)]}))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("detached", "the loss does not depend on the module's outputs"),
        ("infinite", "the loss of step 0 is -inf over samples 0, 1"),
        ("broken", "KeyError: \"no field 'no_such_field'; there are advantage, behaviour_logprobs"),
    ],
)
def test_a_loss_that_fails_is_named(loss: str, message: str) -> None:
    with pytest.raises(StageFailed, match=message) as failure:
        rank_of(text_plan(toy(loss))).train("train", item("train", {"rows": [rows(0, [4, 5])]}))
    assert failure.value.stage == "learn"


def test_a_gradient_that_is_not_finite_is_not_applied() -> None:
    rank = rank_of(text_plan())
    before = rank.weights_digest()
    rank.train("train", item("train", {"rows": [rows(0, [6])]}))
    assert rank._learning is not None
    rank._learning.flat.gradient[0] = torch.nan
    with pytest.raises(RunFailed, match="module 'lm': the gradient of step 0 is not finite"):
        rank.update(UpdateOrder(step=0, part=0, divisor=4.0))
    assert rank.weights_digest() == before


def test_a_module_that_is_no_decoder_cannot_take_a_token_loss() -> None:
    rank = rank_of(text_plan(factory=toy("affine")))
    with pytest.raises(GraphError, match="Affine gives no token log-probs"):
        rank.train("train", item("train", {"rows": [rows(0, [6])]}))


def test_an_untrained_module_is_never_updated() -> None:
    rank = rank_of(text_plan(trainable=False))
    assert not rank.trained
    with pytest.raises(InternalError, match="module 'lm' is not trained"):
        rank.update(UpdateOrder(step=0, part=0, divisor=1.0))


def test_a_rank_refuses_another_ranks_collective() -> None:
    with pytest.raises(ValueError, match="rank 1 of 2 was given another's collective"):
        Rank(text_plan(), "lm", rank=1, world=2, steps=1, exact=False, seed=0)


def test_a_token_that_the_module_cannot_read_names_its_sample() -> None:
    batch = rows(0, [4, 6, 5], first=10)
    tokens = batch["tokens"].values.copy()
    tokens[7] = 99
    column = Column("int64", tokens, batch["tokens"].offsets)
    wrong = batch.with_columns({"tokens": column})
    rank = rank_of(text_plan())
    with pytest.raises(StageFailed, match=r"sample 11: token 99 is outside the vocabulary of"):
        rank.train("train", item("train", {"rows": [wrong]}, units=[0]))
