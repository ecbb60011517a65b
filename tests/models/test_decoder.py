"""The decoder: packing changes nothing, decoding equals training, slots do not matter."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flowgraph.models import decoder, describe
from flowgraph.models.decoder_lm import DecoderLM

SHAPE = {"vocab": 23, "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "embedding_std": 0.3}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # the promise of bit-equal rows is made for one thread


def made(seed: int = 0, **params: Any) -> DecoderLM:
    torch.manual_seed(seed)
    shape: dict[str, Any] = {**SHAPE, **params}
    return decoder(**shape)


def sequences(*lengths: int) -> list[Tensor]:
    source = torch.Generator().manual_seed(7)
    return [torch.randint(0, 23, (n,), generator=source) for n in lengths]


def packed(parts: list[Tensor], padding: int) -> tuple[Tensor, Tensor, Tensor]:
    """One row of all parts, then padding: tokens, positions, segment ids, each [1, L]."""
    blank = torch.zeros(padding, dtype=torch.int64)
    tokens = torch.cat([*parts, blank])
    positions = torch.cat([*(torch.arange(len(p)) for p in parts), blank])
    segments = [torch.full((len(p),), i + 1) for i, p in enumerate(parts)]
    return tokens[None], positions[None], torch.cat([*segments, blank]).int()[None]


def alone(model: DecoderLM, part: Tensor) -> Tensor:
    return model.logits(model(*packed([part], 0)))[0]


def test_a_packed_sequence_gets_the_logits_it_gets_alone() -> None:
    model, parts = made(), sequences(5, 1, 9)
    logits = model.logits(model(*packed(parts, padding=3)))[0]
    start = 0
    for part in parts:
        mine = logits[start : start + len(part)]
        torch.testing.assert_close(mine, alone(model, part), atol=2e-6, rtol=1e-5)
        start += len(part)


def test_no_gradient_crosses_from_one_segment_to_another_or_back_in_time() -> None:
    model, parts = made(feature_width=32), sequences(4, 4)
    tokens, positions, segments = packed(parts, 0)
    features = torch.randn(8, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
    hidden = model(tokens, positions, segments, features, torch.arange(8))
    (gradient,) = torch.autograd.grad(hidden[0, 5].sum(), features)
    touched = gradient.abs().sum(1) > 0
    assert touched.tolist() == [False] * 4 + [True, True, False, False]


def test_a_row_of_padding_alone_is_finite() -> None:
    tokens, positions, segments = packed([], padding=6)
    assert made()(tokens, positions, segments).isfinite().all()


def test_decoding_token_by_token_equals_the_packed_forward() -> None:
    model, (part,) = made(), sequences(9)
    expected = alone(model, part)
    first, kv = model.prefill(part[None, :4], torch.tensor([4]))
    cache = model.new_cache(slots=3, max_length=12)
    cache.write(torch.tensor([1]), kv)
    torch.testing.assert_close(first[0], expected[3], atol=2e-6, rtol=1e-5)
    for position in range(4, 9):
        tokens, positions = torch.zeros(2, 3, dtype=torch.int64)
        tokens[1], positions[1] = part[position], position
        logits = model.decode(tokens, positions, cache)
        torch.testing.assert_close(logits[1], expected[position], atol=2e-6, rtol=1e-5)


def test_prompts_of_different_lengths_are_prefilled_as_if_alone() -> None:
    model, parts = made(), sequences(3, 6, 1)
    prompts = torch.full((3, 6), 22)
    for prompt, part in zip(prompts, parts, strict=True):
        prompt[: len(part)] = part
    logits, _ = model.prefill(prompts, torch.tensor([3, 6, 1]))
    for mine, part in zip(logits, parts, strict=True):
        torch.testing.assert_close(mine, alone(model, part)[-1], atol=2e-6, rtol=1e-5)


def test_positions_are_taken_as_given() -> None:
    model = made()
    tokens, positions, segments = packed(sequences(5), 0)
    near, far = model(tokens, positions, segments), model(tokens, 3 * positions, segments)
    assert not torch.allclose(near, far, atol=1e-3)


def rolled_out(model: DecoderLM, order: list[int], slots: list[int], stale: float) -> list[Tensor]:
    """Greedy logits of four prompts, in prompt order, their rows and slots being permuted."""
    parts = sequences(3, 6, 2, 5)
    prompts = torch.zeros(4, 6, dtype=torch.int64)
    for row, part in enumerate(parts):
        prompts[row, : len(part)] = part
    lengths = torch.tensor([len(part) for part in parts])
    index, back = torch.tensor(order), torch.tensor(order).argsort()
    cache, where = model.new_cache(slots=7, max_length=16), torch.tensor(slots)
    cache.keys.fill_(stale)
    cache.values.fill_(-stale)
    logits, kv = model.prefill(prompts[index], lengths[index])
    cache.write(where, kv)
    seen = [logits[back]]
    for step in range(4):
        tokens, positions = torch.zeros(2, 7, dtype=torch.int64)
        tokens[where], positions[where] = logits.argmax(-1), lengths[index] + step
        logits = model.decode(tokens, positions, cache)[where]
        seen.append(logits[back])
    return seen


def test_a_rollout_is_bit_identical_whatever_its_row_its_slot_and_the_stale_memory() -> None:
    model = made()
    here = rolled_out(model, [0, 1, 2, 3], [0, 1, 2, 3], stale=0.0)
    there = rolled_out(model, [2, 0, 3, 1], [6, 4, 1, 3], stale=50.0)
    for ours, theirs in zip(here, there, strict=True):
        assert torch.equal(ours, theirs)


def test_a_span_that_covers_all_positions_changes_nothing_beyond_rounding() -> None:
    model, (part,) = made(), sequences(5)
    results = []
    for span in (None, 8):
        cache = model.new_cache(slots=1, max_length=32)
        cache.write(torch.tensor([0]), model.prefill(part[None], torch.tensor([5]))[1])
        results.append(model.decode(torch.tensor([3]), torch.tensor([5]), cache, span))
    torch.testing.assert_close(*results, atol=2e-6, rtol=1e-5)


def test_features_take_the_place_of_the_embeddings_they_point_at() -> None:
    model, (part,) = made(feature_width=8), sequences(4)
    tokens, positions, segments = packed([part], 0)
    features = torch.ones(1, 8)
    base = model(tokens, positions, segments, features, torch.tensor([2]))
    tokens[0, 2] = (tokens[0, 2] + 1) % 23
    assert torch.equal(base, model(tokens, positions, segments, features, torch.tensor([2])))
    assert not torch.equal(base, model(tokens, positions, segments, -features, torch.tensor([2])))


def test_features_without_a_projector_are_refused() -> None:
    row = packed(sequences(3), 0)
    with pytest.raises(ValueError, match="feature_width"):
        made()(*row, torch.ones(1, 32), torch.tensor([0]))


def test_equal_seeds_give_equal_weights_and_other_seeds_others() -> None:
    first, again, other = made(0).state_dict(), made(0).state_dict(), made(1).state_dict()
    assert first.keys() == again.keys()
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"tied": False, "hidden": 40},
        {"tied": False, "outputs": 5},
        {"feature_width": 17, "outputs": 5},
        {"kv_heads": None, "layers": 3},
    ],
)
def test_the_description_counts_every_parameter(params: dict[str, Any]) -> None:
    shape = {**SHAPE, **params}
    count = sum(p.numel() for p in made(**params).parameters())
    assert describe("flowgraph.models.factories:decoder", shape)["parameters"] == count


def test_limited_outputs_are_all_the_model_can_say() -> None:
    model, (part,) = made(outputs=5), sequences(4)
    logits, _ = model.prefill(part[None], torch.tensor([4]))
    assert logits.shape == (1, 5)
    assert model.unembedding().shape == (5, 32)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"heads": 5}, r"width \(32\) must be a multiple of 2 \* heads \(10\)"),
        ({"kv_heads": 3}, r"heads \(4\) must be a multiple of kv_heads \(3\)"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"outputs": 24}, "outputs must lie in 1..23"),
    ],
)
def test_a_shape_that_does_not_divide_is_refused(params: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        made(**params)


def test_a_prefill_longer_than_the_cache_is_refused() -> None:
    model, (part,) = made(), sequences(5)
    _, kv = model.prefill(part[None], torch.tensor([5]))
    with pytest.raises(ValueError, match="prefill of 5 tokens in a cache of 4"):
        model.new_cache(slots=1, max_length=4).write(torch.tensor([0]), kv)
    with pytest.raises(ValueError, match="exceeds max_length 512"):
        model.new_cache(slots=1, max_length=513)
