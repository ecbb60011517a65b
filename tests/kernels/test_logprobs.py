"""gather_logprobs and linear_logprobs against log-softmax in fp64."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch import Tensor

from flowgraph.kernels import gather_logprobs, linear_logprobs
from tests.kernels.conftest import INTERPRETED

kernels = hypothesis.settings.get_profile("kernels")
# (dtype of the logits, atol, rtol) of results; gradients are in the logits' dtype
TRIPLES = [(torch.float32, 2e-6, 2e-6), (torch.bfloat16, 2e-5, 2e-5), (torch.float16, 2e-5, 2e-5)]
# one rounding step, or the step that the interpreter cuts off where a device rounds
GRADIENT = {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-9}


def oracle(logits: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    logp = torch.log_softmax(logits / temperature[:, None], -1)
    keep = targets != -100
    picked = logp.gather(1, targets.clamp(min=0)[:, None]).squeeze(1)
    entropy = -torch.where(logp == -torch.inf, 0.0, logp.exp() * logp).sum(1)
    return torch.where(keep, picked, 0.0), torch.where(keep, entropy, 0.0)


def objective(results: tuple[Tensor, Tensor]) -> Tensor:
    logprobs, entropy = results
    weight = torch.arange(1.0, logprobs.numel() + 1, device=logprobs.device)
    return (logprobs * weight).sum() + (entropy * weight.flip(0)).sum()


@hypothesis.settings(kernels)
@hypothesis.given(
    rows=st.integers(0, 5),
    vocabulary=st.sampled_from([1, 2, 7, 64, 4099]),
    triple=st.sampled_from(TRIPLES),
    seed=st.integers(0, 9),
)
def test_logprobs_entropy_and_gradient_equal_log_softmax(
    rows: int,
    vocabulary: int,
    triple: tuple[torch.dtype, float, float],
    seed: int,
    device: torch.device,
) -> None:
    dtype, atol, rtol = triple
    generator = torch.Generator().manual_seed(seed)
    logits = (4 * torch.randn(rows, vocabulary, generator=generator)).to(dtype)
    targets = torch.randint(0, vocabulary, (rows,), generator=generator)
    targets[1::3] = -100
    temperature = torch.rand(rows, generator=generator) + 0.5
    exact = logits.double().requires_grad_()
    expected = oracle(exact, targets, temperature.double())
    moved = logits.to(device).requires_grad_()
    results = gather_logprobs(moved, targets.to(device), temperature=temperature.to(device))
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.cpu().double(), value, atol=atol * 10, rtol=rtol)
    (grad,) = torch.autograd.grad(objective(results), moved)
    (wanted,) = torch.autograd.grad(objective(expected), exact)
    assert grad.dtype == dtype
    torch.testing.assert_close(
        grad.cpu().double(), wanted, atol=rows * GRADIENT[dtype], rtol=GRADIENT[dtype]
    )


@hypothesis.settings(kernels)
@hypothesis.given(
    rows=st.integers(0, 7), chunk=st.integers(1, 8), bias=st.booleans(), seed=st.integers(0, 9)
)
def test_linear_logprobs_equal_those_of_the_product(
    rows: int, chunk: int, bias: bool, seed: int, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, 5), (33, 5), *([(33,)] if bias else [])]
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    targets = torch.randint(0, 33, (rows,), generator=generator)
    targets[:1] = -100
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    logits = exact[0] @ exact[1].T + (exact[2] if bias else 0)
    expected = oracle(logits, targets, torch.full((rows,), 0.7, dtype=torch.float64))
    moved = [tensor.to(device).requires_grad_() for tensor in inputs]
    results = linear_logprobs(
        moved[0],
        moved[1],
        targets.to(device),
        bias=moved[2] if bias else None,
        temperature=0.7,
        chunk=chunk,
    )
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result.cpu().double(), value, atol=2e-5, rtol=1e-5)
    grads = torch.autograd.grad(objective(results), moved)
    for grad, wanted in zip(grads, torch.autograd.grad(objective(expected), exact), strict=True):
        torch.testing.assert_close(grad.cpu().double(), wanted, atol=1e-4, rtol=1e-4)


def test_masked_logits_have_no_probability_and_no_gradient(device: torch.device) -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 1.0, -torch.inf]], device=device, requires_grad=True)
    logprobs, entropy = gather_logprobs(logits, torch.tensor([2], device=device))
    half = torch.log(torch.tensor(2.0)).item()
    assert logprobs.item() == pytest.approx(-half)
    assert entropy.item() == pytest.approx(half)
    (grad,) = torch.autograd.grad(logprobs.sum() + entropy.sum(), logits)
    assert grad[0].tolist() == pytest.approx([0.0, -0.5, 0.5, 0.0], abs=1e-6)


def test_the_maximum_may_come_last(device: torch.device) -> None:
    """Logits that rise over several of the kernel's blocks: sums so far must be scaled down."""
    logits = torch.linspace(-4, 4, 9001).expand(2, -1)
    targets = torch.tensor([0, 9000])
    expected = oracle(logits.double(), targets, torch.ones(2, dtype=torch.float64))
    for result, value in zip(
        gather_logprobs(logits.to(device), targets.to(device)), expected, strict=True
    ):
        torch.testing.assert_close(result.cpu().double(), value, atol=1e-5, rtol=1e-5)


def test_logits_of_any_strides_get_their_gradient(device: torch.device) -> None:
    storage = torch.randn(7, 5, device=device, requires_grad=True)
    targets = torch.tensor([1, 0, 6, 3, 2], device=device)
    results = gather_logprobs(storage.T, targets)
    (grad,) = torch.autograd.grad(objective(results), storage)
    dense = storage.detach().T.contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(objective(gather_logprobs(dense, targets)), dense)
    torch.testing.assert_close(grad, expected.T, atol=1e-6, rtol=1e-6)


def test_large_logits_do_not_overflow(device: torch.device) -> None:
    logits = torch.tensor([[3e38, 0.0], [-3e38, 0.0]], device=device)
    logprobs, entropy = gather_logprobs(logits, torch.tensor([0, 1], device=device))
    assert logprobs.tolist() == [0.0, 0.0]
    assert entropy.tolist() == [0.0, 0.0]


def test_batched_shapes_and_other_ignore_indices_are_kept(device: torch.device) -> None:
    logits = torch.randn(2, 3, 5, device=device)
    targets = torch.tensor([[1, 0, 2], [0, 4, 3]], device=device)
    logprobs, entropy = gather_logprobs(logits, targets, ignore_index=0)
    expected = torch.log_softmax(logits, -1).gather(2, targets[:, :, None]).squeeze(2)
    torch.testing.assert_close(logprobs, torch.where(targets == 0, 0.0, expected))
    assert entropy.shape == (2, 3)
    assert entropy[0, 1] == 0.0
    hidden = torch.randn(2, 3, 4, device=device)
    weight = torch.randn(5, 4, device=device)
    logprobs, _ = linear_logprobs(hidden, weight, targets)
    expected, _ = gather_logprobs(hidden @ weight.T, targets)
    torch.testing.assert_close(logprobs, expected)


@pytest.mark.skipif(INTERPRETED, reason="counts the CPU path's memory")
def test_linear_logprobs_never_hold_all_logits() -> None:
    """The largest tensor that autograd keeps, and the peak of what was allocated, stay small."""
    rows, width, vocabulary = 512, 8, 1024
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.profiler.profile(profile_memory=True) as profile,
    ):
        logprobs, entropy = linear_logprobs(hidden, weight, torch.zeros(rows).long(), chunk=16)
        torch.autograd.grad(logprobs.sum() + entropy.sum(), (hidden, weight))
    assert max(kept) < rows * vocabulary // 16
    allocated = [
        event.self_cpu_memory_usage for event in profile.events() if event.cpu_parent is not None
    ]
    assert 0 < max(allocated) < rows * vocabulary * 4 // 4


def test_wrong_arguments_are_refused() -> None:
    logits = torch.zeros(2, 4)
    with pytest.raises(ValueError, match=r"targets: 4 in row 1, expects 0..3"):
        gather_logprobs(logits, torch.tensor([0, 4]))
    with pytest.raises(ValueError, match=r"targets: expects \[2\]"):
        gather_logprobs(logits, torch.tensor([0]))
    with pytest.raises(ValueError, match="temperature: expects more than 0"):
        gather_logprobs(logits, torch.tensor([0, 1]), temperature=0.0)
    with pytest.raises(ValueError, match="chunk"):
        linear_logprobs(logits, torch.zeros(3, 4), torch.tensor([0, 1]), chunk=0)
    with pytest.raises(ValueError, match="expects hidden"):
        linear_logprobs(logits, torch.zeros(3, 5), torch.tensor([0, 1]))
