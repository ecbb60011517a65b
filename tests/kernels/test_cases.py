"""Faults that training systems had with packs, each as the smallest input that shows it."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from flowgraph.kernels import PackPlan, Ragged, linear_logprobs, pack, segment_reduce

LENGTHS = [2, 2, 2, 2, 16, 16, 16, 16]


def rows(lengths: list[int], width: int, seed: int) -> Ragged:
    generator = torch.Generator().manual_seed(seed)
    return Ragged.of([torch.randn(length, width, generator=generator) for length in lengths])


def summed_loss(hidden: Ragged, labels: Ragged, weight: Tensor, packs: list[list[int]]) -> Tensor:
    """The sum of -log p over the targets of the packed samples: unnormalised, as trainers want."""
    packed = pack({"x": hidden, "y": labels}, PackPlan.of(packs), padding={"y": -100})
    logprobs, _ = linear_logprobs(packed["x"], weight, packed["y"], chunk=7)
    return -segment_reduce(logprobs.reshape(-1), packed.cu_seqlens.cpu()).sum()


def test_the_gradient_of_any_split_equals_that_of_the_full_batch() -> None:
    """P4: sums over micro-batches, divided once by the step's count; means of means are wrong."""
    hidden = rows(LENGTHS, 8, 0)
    labels = Ragged(torch.arange(int(hidden.offsets[-1])).remainder(11), hidden.offsets)
    labels.values[:2] = -100  # sample 0 has no targets
    weight = torch.randn(11, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    count = int((labels.values != -100).sum())

    def gradient(splits: list[list[int]]) -> Tensor:
        total = torch.zeros_like(weight)
        for split in splits:
            loss = summed_loss(hidden, labels, weight, [split])
            total += torch.autograd.grad(loss, weight)[0]
        return total / count

    full = gradient([list(range(8))])
    for splits in (
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0], [1, 4, 2], [3, 7], [5, 6]],
        [[7, 0], [*range(1, 7)]],
    ):
        split = gradient(splits)
        assert (split - full).norm() <= 1e-6 * full.norm()

    def mean_gradient(split: list[int]) -> Tensor:
        targets = sum(int((labels.row(sample) != -100).sum()) for sample in split)
        loss = summed_loss(hidden, labels, weight, [split]) / targets
        return torch.autograd.grad(loss, weight)[0]

    means = (mean_gradient([0, 1, 2, 3]) + mean_gradient([4, 5, 6, 7])) / 2
    assert (means - full).norm() > 0.1 * full.norm()


def test_filler_without_targets_adds_exactly_zero() -> None:
    """P2: a rank with fewer samples runs filler; it must not move the loss or the gradient."""
    hidden = rows([5], 8, 0)
    labels = Ragged(torch.full((5,), -100), hidden.offsets)
    weight = torch.randn(11, 8, requires_grad=True)
    loss = summed_loss(hidden, labels, weight, [[0]])
    assert loss.item() == 0.0
    assert not torch.autograd.grad(loss, weight)[0].any()


def attend(packed: Tensor, segment_ids: Tensor, *, isolate: bool) -> Tensor:
    """Causal attention in a pack [1, L, D], by segment or over the whole row."""
    length = packed.shape[1]
    allowed = torch.ones(length, length, dtype=torch.bool).tril()
    if isolate:
        allowed = allowed & (segment_ids[0][:, None] == segment_ids[0][None, :])
    heads = packed.view(1, length, 2, -1).transpose(1, 2)
    return scaled_dot_product_attention(heads, heads, heads, attn_mask=allowed)


def outputs_and_gradients_of_b(disturbance: float, *, isolate: bool) -> tuple[Tensor, Tensor]:
    samples = rows([5, 7], 8, 3)
    values = samples.values.clone()
    values[:5] += disturbance
    values.requires_grad_()
    plan = PackPlan.of([[0, 1]], length=16, align=4)
    packed = pack({"x": Ragged(values, samples.offsets)}, plan)
    place = torch.randn(16, 8, generator=torch.Generator().manual_seed(4))
    out = attend(packed["x"] + place[packed.positions], packed.segment_ids, isolate=isolate)
    mine = out[:, :, packed.segment_ids[0] == 1]
    (grad,) = torch.autograd.grad(mine.square().sum(), values)
    return mine.detach(), grad[5:]


def test_a_neighbour_in_the_pack_changes_no_bit_of_a_sample() -> None:
    """P6: positions that restart are not isolation; segment ids are."""
    for still, disturbed in zip(
        outputs_and_gradients_of_b(0.0, isolate=True),
        outputs_and_gradients_of_b(1.0, isolate=True),
        strict=True,
    ):
        assert torch.equal(still, disturbed)
    for still, disturbed in zip(
        outputs_and_gradients_of_b(0.0, isolate=False),
        outputs_and_gradients_of_b(1.0, isolate=False),
        strict=True,
    ):
        assert not torch.equal(still, disturbed)


def mrope(text: int, grid: tuple[int, int] | None) -> Tensor:
    """Positions [t, 3] (time, row, column) of an image's grid followed by text."""
    if grid is None:
        return torch.arange(text)[:, None].expand(-1, 3)
    height, width = grid
    image = torch.cartesian_prod(torch.tensor([0]), torch.arange(height), torch.arange(width))
    after = max(height, width) + torch.arange(text)
    return torch.cat([image, after[:, None].expand(-1, 3)])


def test_three_dimensional_positions_of_a_segment_are_those_of_the_sample_alone() -> None:
    """P7: two image samples with a text-only one between them, in one row."""
    samples = [mrope(4, (2, 3)), mrope(5, None), mrope(3, (4, 4))]
    positions = Ragged.of(samples)
    packed = pack({"mrope": positions}, PackPlan.of([[2, 1, 0]], align=8))
    for segment, sample in enumerate((2, 1, 0)):
        inside = packed.segment_ids[0] == segment
        assert torch.equal(packed["mrope"][0, inside], samples[sample])
        assert torch.equal(packed.positions[0, inside], torch.arange(len(samples[sample])))
