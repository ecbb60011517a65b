"""An encoder apart from its backbone learns as in one autograd graph."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from flowgraph.ir.errors import GraphError, InternalError
from flowgraph.ir.plan import Plan
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.trainer.interface import TrainResult, UpdateOrder
from flowgraph.runtime.trainer.rank import Rank
from tests.runtime.trainer.graphs import (
    PLACEHOLDER,
    difference,
    gradient_of,
    images,
    item,
    rank_of,
    vision_plan,
    with_placeholders,
)

SIZES = [[2, 3], [], [4], [1], [], [2, 1, 2]]


def units(sizes: list[list[int]], edges: list[int]) -> tuple[list[Batch], list[Batch]]:
    """Rows and images of the samples, cut into units."""
    tokens, pictures = with_placeholders(1, sizes), images(2, sizes)
    sample = pictures["sample"].values
    row_parts, image_parts = [], []
    for a, b in pairwise(edges):
        row_parts.append(tokens.slice(a, b))
        image_parts.append(pictures.take(np.flatnonzero((sample >= a) & (sample < b))))
    return row_parts, image_parts


def together(plan: Plan, sizes: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Decoder's and encoder's gradients from one autograd graph over rows alone."""
    lm_rank, vit_rank = rank_of(plan), rank_of(plan, "vit")
    lm: Any = lm_rank.module
    vit: Any = vit_rank.module
    (tokens,), (pictures,) = units(sizes, [0, len(sizes)])
    offsets = pictures["patches"].offsets[0]
    encoded, _ = vit.encode(
        {"patches": torch.from_numpy(pictures["patches"].values)},
        {"patches": torch.from_numpy(offsets)},
    )
    of_item = [encoded[a:b] for a, b in pairwise(offsets)]
    total, weight = torch.zeros(()), 0.0
    for row in tokens.to_rows():
        ids = torch.from_numpy(row["tokens"].copy()).unsqueeze(0)
        own = [
            f for f, s in zip(of_item, pictures["sample"].values, strict=True) if s == row["sample"]
        ]
        places = torch.nonzero(ids[0] == PLACEHOLDER)[:, 0]
        joined = (torch.cat(own), places) if own else ()
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        hidden = lm(ids, positions, torch.ones_like(ids, dtype=torch.int32), *joined)
        logprobs = lm.logits(hidden).log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None])[:, 0]
        mask = torch.from_numpy(row["loss_mask"].copy())[1:]
        total, weight = total - (logprobs * mask).sum(), weight + float(mask.sum())
    (total / weight).backward()  # type: ignore[no-untyped-call]
    return lm_rank.flat_gradient(), vit_rank.flat_gradient()


def apart(
    plan: Plan, sizes: list[list[int]], edges: list[int], *, whole: bool, exact: bool = False
) -> tuple[Tensor, Tensor]:
    """The same through apply, train and backward; `whole`: all units in one item."""
    lm, vit = rank_of(plan, exact=exact), rank_of(plan, "vit", exact=exact)
    row_parts, image_parts = units(sizes, edges)
    numbers = list(range(len(row_parts)))
    results: list[TrainResult] = []
    for group in [numbers] if whole else [[number] for number in numbers]:
        at: dict[str, Any] = {"units": group, "number": group[0]}
        given = item("encode", {"images": [image_parts[i] for i in group]}, **at)
        features = vit.apply("encode", given)["features"]
        streams = {"rows": [row_parts[i] for i in group], "features": features}
        results.append(lm.train("train", item("train", streams, **at)))
        for unit, gradient in zip(group, results[-1].gradients["features"], strict=True):
            vit.backward("encode", group[0], [unit], [gradient])
    owners = tuple((number, 0) for number in numbers)
    return gradient_of(lm, results, owners=owners), gradient_of(vit, results, owners=owners)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("edges", "whole"),
    [([0, 6], True), ([0, 1, 2, 3, 4, 5, 6], False), ([0, 2, 4, 6], True), ([0, 1, 2, 6], False)],
)
def test_gradients_apart_equal_one_autograd_graph(
    edges: list[int], whole: bool, exact: bool
) -> None:
    plan = vision_plan()
    expected = together(plan, SIZES)
    for got, wanted in zip(
        apart(plan, SIZES, edges, whole=whole, exact=exact), expected, strict=True
    ):
        assert difference(got, wanted) < 1e-5


def test_features_go_to_their_rows_in_the_order_of_the_items() -> None:
    plan = vision_plan()
    sizes = [[2, 3], [1, 4]]
    (tokens,), (pictures,) = units(sizes, [0, 2])
    lm, vit = rank_of(plan), rank_of(plan, "vit")
    outcomes = []
    for order in ([0, 1, 2, 3], [3, 0, 2, 1]):
        given = item("encode", {"images": [pictures.take(order)]}, number=order[0])
        features = vit.apply("encode", given)["features"]
        streams = {"rows": [tokens], "features": features}
        result = lm.train("train", item("train", streams))
        back = result.gradients["features"][0]["features"]
        outcomes.append((result.sums["loss"], back.take(np.argsort(order)).values))
    assert outcomes[0][0] == outcomes[1][0]
    assert np.array_equal(outcomes[0][1], outcomes[1][1])


def test_several_micro_batches_add_up_to_the_gradient_of_all_features() -> None:
    plan = vision_plan(micro_batch=8)
    expected = together(plan, SIZES)
    for got, wanted in zip(apart(plan, SIZES, [0, 6], whole=True), expected, strict=True):
        assert difference(got, wanted) < 1e-5


def test_features_that_two_rows_share_get_both_gradients() -> None:
    plan = vision_plan()
    (tokens,), (pictures,) = units([[2, 3]], [0, 1])
    features = rank_of(plan, "vit").apply("encode", item("encode", {"images": [pictures]}))
    back = []
    for batch in (tokens, Batch.concat([tokens, tokens])):
        result = rank_of(plan).train("train", item("train", {"rows": [batch], **features}))
        back.append(result.gradients["features"][0]["features"].values)
    assert back[0].any()
    np.testing.assert_allclose(back[1], 2 * back[0], rtol=1e-5, atol=1e-6)


def test_units_without_any_image_train_and_their_encoder_gets_zero() -> None:
    plan = vision_plan()
    lm_gradient, vit_gradient = apart(plan, [[], [], []], [0, 1, 3], whole=False)
    assert not vit_gradient.any()
    assert lm_gradient.any()


def test_modules_in_bfloat16_train_on_float32_records() -> None:
    plan, expected = vision_plan(dtype="bfloat16"), together(vision_plan(), SIZES)
    for got, wanted in zip(apart(plan, SIZES, [0, 3, 6], whole=True), expected, strict=True):
        assert got.dtype == torch.bfloat16
        assert difference(got, wanted) < 0.1


def test_a_module_is_not_called_for_items_that_are_not_there() -> None:
    vit = rank_of(vision_plan(), "vit")
    parts = vit.apply("encode", item("encode", {"images": [images(0, [[]])]}))["features"]
    assert [part.rows for part in parts] == [0]
    assert parts[0]["features"].values.shape == (0, 6)
    assert vit.module.calls == 0


def test_a_count_that_differs_from_the_placeholders_names_the_sample() -> None:
    plan = vision_plan()
    (tokens,), _ = units([[2], [3]], [0, 2])
    pictures = images(2, [[2], [4]])
    features = rank_of(plan, "vit").apply("encode", item("encode", {"images": [pictures]}))
    with pytest.raises(
        StageFailed,
        match=r"stage 'join', sample 1: 3 placeholder tokens \(id 22\), 4 feature rows",
    ):
        rank_of(plan).train("train", item("train", {"rows": [tokens], **features}))


def test_a_frozen_backbone_still_teaches_its_encoder() -> None:
    plan = vision_plan(lm=False)
    lm, vit = rank_of(plan), rank_of(plan, "vit")
    (tokens,), (pictures,) = units(SIZES, [0, 6])
    features = vit.apply("encode", item("encode", {"images": [pictures]}))
    result = lm.train("train", item("train", {"rows": [tokens], **features}))
    vit.backward("encode", 0, [0], result.gradients["features"])
    _, expected = together(vision_plan(), SIZES)
    assert not lm.trained
    assert difference(gradient_of(vit, [result]), expected) < 1e-5


def test_a_frozen_encoder_keeps_no_activations_and_gets_no_gradient() -> None:
    plan = vision_plan(encoder=False)
    lm, vit = rank_of(plan), rank_of(plan, "vit")
    (tokens,), (pictures,) = units(SIZES, [0, 6])
    features = vit.apply("encode", item("encode", {"images": [pictures]}))
    result = lm.train("train", item("train", {"rows": [tokens], **features}))
    assert result.gradients == {}
    with pytest.raises(InternalError, match="item 0 has no activations"):
        vit.backward("encode", 0, [0], [features["features"][0]])


def test_an_evaluation_keeps_no_activations() -> None:
    vit = rank_of(vision_plan(), "vit")
    given = item("encode", {"images": [images(0, [[2]])]}, variant=1)
    features = vit.apply("encode", given)["features"]
    with pytest.raises(InternalError, match="item 0 has no activations"):
        vit.backward("encode", 0, [0], features)


def learning(plan: Plan) -> tuple[Rank, Batch]:
    """An encoder's rank with one unit applied, and its features."""
    vit = rank_of(plan, "vit")
    parts = [images(0, [[2]]), images(1, [[3]])]
    return vit, vit.apply("encode", item("encode", {"images": parts}))["features"][0]


def test_an_update_before_all_gradients_came_is_our_bug() -> None:
    vit, features = learning(vision_plan())
    vit.backward("encode", 0, [0], [features])
    with pytest.raises(InternalError, match=r"item 0 waits for the gradient of units \[1\]"):
        vit.update(UpdateOrder(step=0, part=0, divisor=1.0))


def test_a_gradient_that_comes_twice_is_our_bug() -> None:
    vit, features = learning(vision_plan())
    vit.backward("encode", 0, [0], [features])
    with pytest.raises(InternalError, match="unit 0 got its gradient twice"):
        vit.backward("encode", 0, [0], [features])


def test_a_gradient_of_another_size_is_our_bug() -> None:
    vit, features = learning(vision_plan())
    with pytest.raises(InternalError, match="unit 1 has 3 output rows, its gradient 2"):
        vit.backward("encode", 0, [1], [features])


def test_a_module_that_raises_is_named_with_its_stage() -> None:
    vit = rank_of(vision_plan(), "vit")
    batch = images(0, [[2]])
    wrong = batch.with_columns({"patches": batch["item"]})
    with pytest.raises(StageFailed, match="stage 'encode': ") as failure:
        vit.apply("encode", item("encode", {"images": [wrong]}))
    assert "Traceback" in failure.value.trace


def test_a_join_without_a_placeholder_is_refused() -> None:
    with pytest.raises(GraphError, match="the token that features take the place of is not named"):
        rank_of(vision_plan(placeholder=-1)).train(
            "train", item("train", {"rows": [], "features": []})
        )
