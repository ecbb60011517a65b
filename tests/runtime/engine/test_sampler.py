"""Sampling draws from the stated distribution, and each row for itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.runtime.engine.sampler import sample

NEARLY_ONE = 1.0 - 2.0**-53


def draw(
    logits: torch.Tensor,
    uniforms: np.ndarray,
    temperature: float = 1.0,
    allowed: torch.Tensor | None = None,
) -> tuple[list[int], list[float]]:
    tokens, logprobs = sample(
        logits,
        temperature=np.full(len(logits), temperature),
        uniforms=uniforms,
        allowed=allowed,
    )
    return tokens.tolist(), logprobs.tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_the_softmax_at_the_temperature(temperature: float) -> None:
    count = 20_000
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, 0.5, 1.5, -2.0, 0.25])
    uniforms = np.random.Generator(np.random.Philox(key=5)).random(count)
    tokens, _ = draw(logits.expand(count, -1), uniforms, temperature)
    expected = torch.softmax(logits.double() / temperature, 0).numpy() * count
    found = np.bincount(tokens, minlength=8)
    assert ((found - expected) ** 2 / expected).sum() < 24.3  # 7 degrees of freedom, p = .001


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_log_probabilities_are_those_of_the_distribution_sampled_from(temperature: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 33) * 3
    tokens, logprobs = draw(logits, np.linspace(0, NEARLY_ONE, 50), temperature)
    expected = torch.log_softmax(logits.double() / temperature, -1)[torch.arange(50), tokens]
    assert np.allclose(logprobs, expected.numpy(), atol=1e-6)


def test_only_allowed_tokens_are_sampled_and_share_the_whole_probability() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0, 9.0]]).expand(200, -1)
    allowed = torch.tensor([[False, True, True, False]]).expand(200, -1)
    tokens, logprobs = draw(logits, np.linspace(0, NEARLY_ONE, 200), allowed=allowed)
    assert sorted(set(tokens)) == [1, 2]
    assert 95 <= tokens.count(1) <= 105
    assert np.allclose(logprobs, np.log(0.5))


def test_temperature_zero_takes_the_likeliest_with_certainty() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9], [5.0, 3.0, 2.9]])
    assert draw(logits, np.array([0.999, 0.999]), 0.0) == ([1, 0], [0.0, 0.0])


def test_temperatures_may_differ_by_row() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9]]).expand(3, -1)
    tokens, logprobs = sample(
        logits, temperature=np.array([0.0, 1.0, 100.0]), uniforms=np.array([0.9, 0.9, 0.9])
    )
    assert tokens.tolist() == [1, 2, 2]
    assert logprobs[0] == 0.0
    assert logprobs[2] == pytest.approx(-np.log(3), abs=0.03)


@pytest.mark.parametrize("uniform", [0.0, NEARLY_ONE])
def test_a_token_without_probability_is_never_sampled(uniform: float) -> None:
    logits = torch.full((4, 6), -torch.inf)
    logits[torch.arange(4), torch.tensor([1, 2, 3, 4])] = 0.0
    assert draw(logits, np.full(4, uniform))[0] == [1, 2, 3, 4]


def test_logits_that_are_not_finite_give_no_log_probability() -> None:
    _, logprobs = draw(torch.tensor([[0.0, torch.nan], [0.0, 1.0]]), np.array([0.5, 0.5]))
    assert np.isnan(logprobs[0])
    assert np.isfinite(logprobs[1])


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 70), st.integers(0, 2**32 - 1), st.data())
def test_a_row_gives_the_same_bits_whatever_stands_around_it(
    rows: int, vocab: int, seed: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(rows, vocab)).astype(np.float32) * 4)
    temperature = rng.choice([0.0, 0.3, 1.0, 1.7], size=rows)
    allowed = torch.from_numpy(rng.random((rows, vocab)) < 0.7)
    allowed[:, rng.integers(vocab)] = True
    uniforms = rng.random(rows)
    pick = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=rows)))
    whole = sample(logits, temperature=temperature, uniforms=uniforms, allowed=allowed)
    part = sample(
        logits[pick], temperature=temperature[pick], uniforms=uniforms[pick], allowed=allowed[pick]
    )
    assert np.array_equal(whole[0][pick], part[0])
    assert np.array_equal(whole[1][pick].view(np.int32), part[1].view(np.int32))
