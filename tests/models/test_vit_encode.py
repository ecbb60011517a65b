"""Whole images through the encoder: they share rows where that is cheaper, and nothing else."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from flowgraph.models import patchify, vit
from flowgraph.models.patches import ImagePatches
from flowgraph.models.vision_transformer import VisionTransformer


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def made() -> VisionTransformer:
    torch.manual_seed(0)
    return vit(layers=2, width=32, heads=2, patch=2, merge=2, out_width=20)


def images(*sizes: tuple[int, int]) -> list[ImagePatches]:
    source = np.random.default_rng(3)
    return [patchify(source.normal(size=size), patch=2, merge=2) for size in sizes]


def encoded(model: VisionTransformer, parts: Sequence[ImagePatches]) -> tuple[Tensor, Tensor]:
    columns = {
        name: torch.from_numpy(np.concatenate([getattr(part, name) for part in parts]))
        for name in ("patches", "rows", "cols")
    }
    lengths = [0, *(len(part.rows) for part in parts)]
    return model.encode(columns, {"patches": torch.tensor(lengths).cumsum(0)})


def shapes_of(model: VisionTransformer, parts: Sequence[ImagePatches]) -> list[tuple[int, ...]]:
    """Of the rows that the first layer sees."""
    seen: list[tuple[int, ...]] = []
    hook = model.embedding.register_forward_hook(
        lambda _, inputs, output: seen.append(tuple(output.shape[:2]))
    )
    encoded(model, parts)
    hook.remove()
    return seen


def test_images_get_the_features_and_the_gradient_that_they_get_alone() -> None:
    parts = images((4, 4), (16, 16), (4, 8), (4, 4), (8, 8), (4, 8))
    features, offsets = encoded(made(), parts)
    alone = [encoded(made(), [part])[0] for part in parts]
    assert offsets.tolist() == [0, 1, 17, 19, 20, 24, 26]
    torch.testing.assert_close(features, torch.cat(alone), atol=3e-6, rtol=1e-5)
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    gradients = []
    for packs in ([parts], [[part] for part in parts]):
        model = made()
        outputs = torch.cat([encoded(model, some)[0] for some in packs])
        (outputs * weights).sum().backward()  # type: ignore[no-untyped-call]
        found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients.append(torch.cat(found))
    assert (gradients[0] - gradients[1]).norm() <= 1e-6 * gradients[1].norm()


def test_small_images_share_the_row_of_a_large_one() -> None:
    small = images(*[(4, 4)] * 16)
    large = images((16, 16))
    assert shapes_of(made(), large + small) == [(2, 64)]
    assert shapes_of(made(), small) == [(16, 4)]


def test_equal_chunks_have_equal_bits_and_shapes() -> None:
    parts = images((4, 4), (8, 12), (4, 8), (8, 8))
    first, again = (encoded(made(), parts)[0] for _ in range(2))
    assert torch.equal(first, again)


def test_images_without_patches_have_no_features() -> None:
    columns = {"patches": torch.zeros(0, 4), "rows": torch.zeros(0), "cols": torch.zeros(0)}
    features, offsets = made().encode(columns, {"patches": torch.tensor([0, 0])})
    assert (tuple(features.shape), offsets.tolist()) == ((0, 20), [0, 0])
