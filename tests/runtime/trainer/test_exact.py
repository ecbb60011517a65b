"""In exact mode a step's bits do not depend on how its units came, and packing is a unit's own."""

import numpy as np
import torch

from flowgraph.runtime.trainer.interface import UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from tests.runtime.trainer.graphs import difference, item, rank_of, rows, text_plan, toy

WEIGHTED = toy("weighted", entropy=0.1)
UNITS = [rows(unit, [5, 9 + unit, 3], first=3 * unit) for unit in range(5)]


def after_steps(items: list[list[int]], *, exact: bool, steps: int = 2) -> Rank:
    """A rank that trained on the units in these items, in this order."""
    rank = rank_of(text_plan(WEIGHTED, clip=1.0), exact=exact)
    for step in range(steps):
        weights: dict[int, float] = {}
        for number, group in enumerate(items):
            parts = [UNITS[unit] for unit in group]
            given = item("train", {"rows": parts}, units=group, number=number, step=step)
            weights.update(rank.train("train", given).weights)
        owners = tuple((unit, 0) for unit in range(len(UNITS)))
        divisor = sum(weights[unit] for unit in range(len(UNITS)))
        rank.update(UpdateOrder(step=step, part=0, divisor=divisor, owners=owners))
    return rank


def test_weights_are_bit_equal_over_item_sizes_and_arrival_orders(exact_process: None) -> None:
    expected = after_steps([[0, 1, 2, 3, 4]], exact=True).weights_digest()
    for items in ([[4], [2], [0], [3], [1]], [[3, 1], [4, 0, 2]]):
        assert after_steps(items, exact=True).weights_digest() == expected
    assert rank_of(text_plan(WEIGHTED)).weights_digest() != expected


def test_by_default_gradients_agree_with_exact_ones(exact_process: None) -> None:
    expected = after_steps([[0, 1, 2, 3, 4]], exact=True, steps=1).flat_gradient()
    for items in ([[0, 1, 2, 3, 4]], [[3, 1], [4, 0, 2]]):
        assert difference(after_steps(items, exact=False, steps=1).flat_gradient(), expected) < 1e-5


def test_a_run_continues_from_its_weights_bit_for_bit(exact_process: None) -> None:
    rank = rank_of(text_plan(WEIGHTED), exact=True)
    flat, digest = after_steps([[0, 1, 2, 3, 4]], exact=True).publish()
    rank.load(flat, digest)
    assert torch.equal(rank.publish()[0], flat)
    assert not np.array_equal(rank_of(text_plan(WEIGHTED)).publish()[0].numpy(), flat.numpy())
