"""merge_features and find_placeholders against loops over tokens."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from flowgraph.kernels import find_placeholders, merge_features

kernels = hypothesis.settings.get_profile("kernels")
IMAGE = 99


@hypothesis.settings(kernels)
@hypothesis.given(
    tokens=st.lists(st.booleans(), max_size=12),
    levels=st.integers(0, 3),
    width=st.sampled_from([1, 3, 8, 40]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_features_stand_at_the_placeholders_and_gradients_go_to_both_sides(
    tokens: list[bool], levels: int, width: int, dtype: torch.dtype, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(0)
    positions = [place for place, image in enumerate(tokens) if image]
    embeddings = torch.randn(len(tokens), width, generator=generator).to(dtype)
    shape = (len(positions), width) if levels == 0 else (len(positions), levels, width)
    features = torch.randn(shape, generator=generator).to(dtype)
    expected = torch.zeros(max(1, levels), len(tokens), width, dtype=dtype)
    expected[0] = embeddings
    for row, place in enumerate(positions):
        expected[:, place] = features[row]
    inputs = [tensor.to(device).requires_grad_() for tensor in (embeddings, features)]
    where = torch.tensor(positions, dtype=torch.int64, device=device)
    merged = merge_features(inputs[0], inputs[1], where)
    assert torch.equal(merged.cpu(), expected if levels else expected[0])

    weight = torch.randn(merged.shape, generator=generator).to(dtype)
    grads = torch.autograd.grad(merged, inputs, weight.to(device))
    by_level = weight if levels else weight[None]
    own = by_level[0].clone()
    own[positions] = 0
    assert torch.equal(grads[0].cpu(), own)
    given = by_level[:, positions].transpose(0, 1)
    assert torch.equal(grads[1].cpu(), given if levels else given[:, 0])


def test_placeholders_of_several_images_and_samples_are_found_in_order() -> None:
    ids = torch.tensor([1, IMAGE, IMAGE, 2, 3, IMAGE, 4])
    offsets = torch.tensor([0, 4, 5, 7])
    found = find_placeholders(ids, IMAGE, offsets, torch.tensor([2, 0, 1]))
    assert found.tolist() == [1, 2, 5]


def test_a_mismatch_names_the_sample_and_both_counts() -> None:
    ids = torch.tensor([1, IMAGE, IMAGE, 2, 3, IMAGE, 4])
    offsets, counts = torch.tensor([0, 4, 5, 7]), torch.tensor([2, 0, 3])
    message = r"sample cat: 1 placeholder tokens \(id 99\), 3 feature rows"
    with pytest.raises(ValueError, match=message):
        find_placeholders(ids, IMAGE, offsets, counts, names=["dog", "fish", "cat"])
    with pytest.raises(ValueError, match="sample 2:"):
        find_placeholders(ids, IMAGE, offsets, counts)
    # the sums agree, the samples do not
    with pytest.raises(ValueError, match=r"sample 0: 2 .* 1 feature"):
        find_placeholders(ids, IMAGE, offsets, torch.tensor([1, 0, 2]))
    with pytest.raises(ValueError, match="outside every sample"):
        find_placeholders(ids, IMAGE, torch.tensor([0, 4]), torch.tensor([2]))


def test_shapes_that_do_not_fit_are_refused() -> None:
    embeddings, features = torch.zeros(4, 8), torch.zeros(2, 8)
    with pytest.raises(ValueError, match=r"positions: expects int64 \[2\]"):
        merge_features(embeddings, features, torch.tensor([1]))
    with pytest.raises(ValueError, match="rows of 8"):
        merge_features(embeddings, torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="named twice"):
        merge_features(embeddings, features, torch.tensor([1, 1]))
    with pytest.raises(ValueError, match=r"positions: expects 0..3"):
        merge_features(embeddings, features, torch.tensor([1, 4]))
