"""Losses: unnormalised sums over the mask, with the gradients the papers ask for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

import pytest
import torch
from torch import Tensor

from flowgraph.algorithms import cross_entropy, grpo, ppo, rloo
from flowgraph.algorithms.algorithm import Algorithm, Metrics
from flowgraph.algorithms.cross_entropy import token_cross_entropy

Loss = Callable[..., tuple[Tensor, Metrics]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    logprobs: Tensor
    entropy: Tensor
    segment_ids: Tensor


def outputs(length: int = 12, seed: int = 0) -> Packed:
    source = torch.Generator().manual_seed(seed)
    return Packed(
        logprobs=(-torch.rand(length, generator=source) - 0.1).requires_grad_(),
        entropy=torch.rand(length, generator=source).requires_grad_(),
        segment_ids=torch.ones(length, dtype=torch.int32),
    )


def fields(length: int = 12, seed: int = 1) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return {
        "loss_mask": (torch.rand(length, generator=source) < 0.7).float(),
        "advantage": torch.randn(length, generator=source),
        "behaviour_logprobs": -torch.rand(length, generator=source) - 0.1,
        "reference_logprobs": -torch.rand(length, generator=source) - 0.1,
    }


LOSSES: list[tuple[Loss, dict[str, float]]] = [
    (grpo.loss, {"entropy": 0.1, "kl": 0.2}),
    (ppo.loss, {"entropy": 0.1, "kl": 0.2}),
    (rloo.loss, {"entropy": 0.1}),
    (cross_entropy.loss, {}),
]
every_loss = pytest.mark.parametrize(("loss", "params"), LOSSES)


def part(whole: Mapping[str, Tensor], cut: slice) -> dict[str, Tensor]:
    return {name: column[cut] for name, column in whole.items()}


@every_loss
def test_the_sums_of_parts_are_the_sums_of_the_whole(loss: Loss, params: dict[str, float]) -> None:
    out, columns = outputs(), fields()
    whole, metrics = loss(out, columns, **params)
    total, sums = torch.zeros(()), dict.fromkeys(metrics, torch.zeros(()))
    for cut in (slice(0, 5), slice(5, 12)):
        piece = Packed(
            logprobs=out.logprobs[cut], entropy=out.entropy[cut], segment_ids=out.segment_ids[cut]
        )
        value, found = loss(piece, part(columns, cut), **params)
        total = total + value
        sums = {name: sums[name] + found[name] for name in sums}
    torch.testing.assert_close(total, whole)
    torch.testing.assert_close(sums, metrics)


@every_loss
def test_what_lies_outside_the_mask_has_no_effect_even_if_infinite(
    loss: Loss, params: dict[str, float]
) -> None:
    columns = fields()
    outside = columns["loss_mask"] == 0
    results = []
    for junk in (0.0, float("inf"), float("nan")):
        out = outputs()
        spoilt = {
            name: column if name == "loss_mask" else column.masked_fill(outside, junk)
            for name, column in columns.items()
        }
        value, _ = loss(out, spoilt, **params)
        (gradient,) = torch.autograd.grad(value, out.logprobs)
        assert gradient[outside].eq(0).all()
        results.append((value.detach(), gradient))
    for value, gradient in results[1:]:
        assert torch.equal(value, results[0][0])
        assert torch.equal(gradient, results[0][1])


@every_loss
def test_metrics_carry_no_gradient(loss: Loss, params: dict[str, float]) -> None:
    _, metrics = loss(outputs(), fields(), **params)
    assert not any(value.requires_grad for value in metrics.values())


def test_on_policy_the_grpo_gradient_is_minus_the_advantage() -> None:
    out, columns = outputs(), fields()
    columns["behaviour_logprobs"] = out.logprobs.detach()
    value, metrics = grpo.loss(out, columns)
    (gradient,) = torch.autograd.grad(value, out.logprobs)
    torch.testing.assert_close(gradient, -columns["advantage"] * columns["loss_mask"])
    assert metrics["clipped"] == 0
    assert metrics["behaviour_kl"] == 0


def test_a_ratio_beyond_the_clip_gets_no_gradient_on_its_good_side_only() -> None:
    out = outputs(4)
    columns = {
        "loss_mask": torch.ones(4),
        "advantage": torch.tensor([1.0, -1.0, 1.0, -1.0]),
        "behaviour_logprobs": out.logprobs.detach() - torch.tensor([1.0, 1.0, -1.0, -1.0]),
    }
    value, metrics = grpo.loss(out, columns, clip=0.2)
    (gradient,) = torch.autograd.grad(value, out.logprobs)
    assert (gradient == 0).tolist() == [True, False, False, True]
    assert metrics["clipped"] == 2


def test_the_upper_clip_can_be_wider() -> None:
    out = outputs(1)
    columns = {
        "loss_mask": torch.ones(1),
        "advantage": torch.ones(1),
        "behaviour_logprobs": out.logprobs.detach() - 0.25,  # ratio 1.284
    }
    assert grpo.loss(out, columns, clip=0.2)[1]["clipped"] == 1
    assert grpo.loss(out, columns, clip=0.2, clip_high=0.3)[1]["clipped"] == 0


def test_the_penalty_pulls_towards_the_reference() -> None:
    out, columns = outputs(), fields()
    columns["behaviour_logprobs"] = out.logprobs.detach()
    columns["advantage"] = torch.zeros(12)
    value, metrics = ppo.loss(out, columns, kl=1.0)
    (gradient,) = torch.autograd.grad(value, out.logprobs)
    assert metrics["reference_kl"] > 0
    gap = out.logprobs.detach() - columns["reference_logprobs"]
    taken = columns["loss_mask"] > 0
    assert torch.equal((gradient > 0)[taken], (gap > 0)[taken])


@pytest.mark.parametrize("loss", [grpo.loss, ppo.loss, rloo.loss])
def test_the_entropy_bonus_raises_entropy(loss: Loss) -> None:
    out, columns = outputs(), fields()
    value, _ = loss(out, columns, entropy=0.3)
    (gradient,) = torch.autograd.grad(value, out.entropy)
    torch.testing.assert_close(gradient, -0.3 * columns["loss_mask"])


def test_cross_entropy_weighs_tokens_by_the_mask() -> None:
    out, columns = outputs(2), {"loss_mask": torch.tensor([2.0, 0.5])}
    value, _ = cross_entropy.loss(out, columns)
    torch.testing.assert_close(value, -(2.0 * out.logprobs[0] + 0.5 * out.logprobs[1]))


ALGORITHMS = [
    grpo.grpo(entropy=0.1, kl=0.1),
    grpo.grpo(scale_by_std=False),
    rloo.rloo(entropy=0.1),
    ppo.ppo(),
    token_cross_entropy(),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_is_names_that_resolve_and_the_fields_its_loss_reads(
    algorithm: Algorithm,
) -> None:
    module, _, name = algorithm.loss.partition(":")
    available = fields()
    needed = {name: available[name] for name in (*algorithm.needs, "loss_mask")}
    value, _ = getattr(import_module(module), name)(outputs(), needed, **algorithm.loss_params)
    assert value.isfinite()
    if algorithm.credit is not None:
        module, _, name = algorithm.credit.partition(":")
        assert callable(getattr(import_module(module), name))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: grpo.grpo(clip=1.5), "grpo: clip must lie between 0 and 1, got 1.5"),
        (lambda: grpo.grpo(entropy=-0.1), "grpo: entropy must not be negative"),
        (lambda: ppo.ppo(kl=float("nan")), "ppo: kl must not be negative, got nan"),
        (lambda: rloo.rloo(entropy=-1.0), "rloo: entropy must not be negative"),
    ],
)
def test_a_setting_out_of_range_is_refused(make: Callable[[], Algorithm], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()
