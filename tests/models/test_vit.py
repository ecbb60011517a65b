"""The vision transformer and its patches: images keep their size and stay among themselves."""

import numpy as np
import pytest
import torch
from torch import Tensor

from flowgraph.models import describe, patchify, vit
from flowgraph.models.patches import ImagePatches
from flowgraph.models.vision_transformer import VisionTransformer

SHAPE = {"layers": 2, "width": 32, "heads": 2, "patch": 2, "merge": 2, "out_width": 20}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def made() -> VisionTransformer:
    torch.manual_seed(0)
    return vit(**SHAPE)


def images(*sizes: tuple[int, int]) -> list[ImagePatches]:
    source = np.random.default_rng(3)
    return [patchify(source.normal(size=size), patch=2, merge=2) for size in sizes]


def packed(parts: list[ImagePatches], padding: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All images in one flat row, then padding."""
    ids = np.concatenate([np.full(len(p.rows), i + 1) for i, p in enumerate(parts)])
    fields = (
        np.concatenate([p.patches for p in parts]),
        ids.astype(np.int32),
        np.concatenate([p.rows for p in parts]),
        np.concatenate([p.cols for p in parts]),
    )
    flat = (torch.from_numpy(f) for f in fields)
    patches, image_ids, rows, cols = (
        torch.cat([f, f.new_zeros(padding, *f.shape[1:])]) for f in flat
    )
    return patches, image_ids, rows, cols


def test_an_image_gets_the_features_it_gets_alone() -> None:
    model, parts = made(), images((4, 4), (8, 12), (6, 4))
    together = model(*packed(parts, padding=8))
    assert together.shape == (1 + 6 + 2 + 2, 20)
    start = 0
    for part in parts:
        lone = model(*packed([part]))
        mine = together[start : start + len(lone)]
        torch.testing.assert_close(mine, lone, atol=2e-6, rtol=1e-5)
        start += len(lone)


def test_several_rows_at_once_equal_each_row_by_itself() -> None:
    model = made()
    rows = [packed(images((4, 8)), padding=8), packed(images((8, 8)))]
    both = model(*(torch.stack(fields) for fields in zip(*rows, strict=True)))
    for mine, row in zip(both, rows, strict=True):
        torch.testing.assert_close(mine, model(*row), atol=2e-6, rtol=1e-5)


def test_a_feature_sees_all_of_its_image_and_nothing_of_another() -> None:
    patches, *places = packed(images((8, 4), (4, 8)))
    patches.requires_grad_()
    (gradient,) = torch.autograd.grad(made()(patches, *places)[0].sum(), patches)
    assert (gradient.abs().sum(1) > 0).tolist() == [True] * 8 + [False] * 8


def test_where_a_patch_lies_matters() -> None:
    patches, ids, rows, cols = packed(images((4, 8)))
    model = made()
    assert not torch.allclose(
        model(patches, ids, rows, cols), model(patches, ids, cols, rows), atol=1e-3
    )


def test_the_description_counts_every_parameter() -> None:
    count = sum(p.numel() for p in made().parameters())
    described = describe("flowgraph.models.factories:vit", SHAPE)
    assert described["parameters"] == count
    assert described["out_width"] == 20


def test_the_patches_of_one_feature_are_adjacent_and_name_their_place() -> None:
    image = np.arange(8 * 12, dtype=np.float32).reshape(8, 12)
    cut = patchify(image, patch=2, merge=2)
    assert cut.patches.shape == (24, 4)
    for values, row, col in zip(cut.patches, cut.rows, cut.cols, strict=True):
        here = image[2 * row : 2 * row + 2, 2 * col : 2 * col + 2]
        assert values.tolist() == here.ravel().tolist()
    squares = [
        {(r // 2, c // 2) for r, c in zip(cut.rows[i : i + 4], cut.cols[i : i + 4], strict=True)}
        for i in range(0, 24, 4)
    ]
    assert [len(square) for square in squares] == [1] * 6


def test_the_edges_are_padded_with_the_mean() -> None:
    cut = patchify(np.full((3, 5), 9, dtype=np.uint8), patch=2, merge=2, mean=8.0, std=2.0)
    assert cut.patches.shape == (8, 4)
    assert cut.patches.sum() == pytest.approx(3 * 5 * 0.5)


def test_colours_stay_beside_their_pixel() -> None:
    image = np.arange(4 * 4 * 3).reshape(4, 4, 3)
    cut = patchify(image, patch=2, merge=1)
    assert cut.patches[1].tolist() == image[:2, 2:].ravel().tolist()


def test_an_empty_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"none empty, got \(0, 5\)"):
        patchify(np.zeros((0, 5)))
