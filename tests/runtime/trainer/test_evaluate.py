"""Evaluations add up over any grouping, and touch nothing."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.trainer.interface import Sums, UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from tests.runtime.trainer.graphs import item, rank_of, rows, text_plan, toy


def figures(rank: Rank, parts: list[int]) -> Sums:
    batch = rows(3, [6, 9, 4, 7])
    edges = [*parts, 4]
    cut = [batch.slice(a, b) for a, b in pairwise(edges)]
    totals: Sums = {}
    for part in cut:
        given = item("train", {"rows": [part]}, variant=1)
        for name, (total, count) in rank.evaluate("train", given).items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + count)
    return totals


def test_the_figures_of_the_metric_add_up_over_items() -> None:
    rank = rank_of(text_plan(metric=toy("per_sample_match")))
    assert figures(rank, [0]) == figures(rank, [0, 1, 3]) == figures(rank, [0, 1, 2, 3])
    assert figures(rank, [0])["match"][1] == 4.0


def test_a_model_that_learned_its_rows_matches_them_all() -> None:
    rank = rank_of(text_plan(metric=toy("per_sample_match")))
    learned = rows(3, [6, 9, 4, 7])
    rank.load(*_trained_on(learned))
    assert figures(rank, [0]) == {"match": (4.0, 4.0)}


def _trained_on(batch: Batch) -> tuple[torch.Tensor, str]:
    rank = rank_of(text_plan())
    for step in range(60):
        result = rank.train("train", item("train", {"rows": [batch]}, step=step))
        rank.update(UpdateOrder(step=step, part=0, divisor=sum(result.weights.values())))
    return rank.publish()


def test_without_a_metric_the_loss_is_the_figure() -> None:
    rank = rank_of(text_plan())
    total, count = figures(rank, [0, 2])["loss"]
    result = rank.train("train", item("train", {"rows": [rows(3, [6, 9, 4, 7])]}))
    assert count == sum(result.weights.values())
    assert total == pytest.approx(result.sums["loss"], rel=1e-6)


def test_an_evaluation_leaves_no_gradient() -> None:
    rank = rank_of(text_plan())
    figures(rank, [0])
    assert not rank.flat_gradient().any()
    assert np.isfinite(list(figures(rank, [0])["loss"])).all()
