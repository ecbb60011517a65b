"""The built-in engine serves calls as asked, in either mode and with either kind of cache."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from flowgraph.ir.errors import ConfigurationError, RunFailed
from flowgraph.models.configs import DecoderConfig
from flowgraph.models.decoder_lm import DecoderLM
from flowgraph.runtime.engine.interface import Call, CallRefused, Engine, Sampling
from flowgraph.runtime.engine.torch_engine import TorchEngine
from flowgraph.runtime.weights import WeightsRefused, flatten
from tests.runtime.engine.calls import bits, expected_logprobs, finish, make_call, varied_calls
from tests.runtime.engine.models import VOCAB, BlockDecoder, TrimmableDecoder, small

Maker = Callable[..., TorchEngine]


def engine_of(kind: type[DecoderLM], *, exact: bool, slots: int = 8, block: int = 4) -> TorchEngine:
    return TorchEngine(small(kind), slots=slots, max_length=48, exact=exact, block=block)


@pytest.fixture(params=["exact", "blocks", "trimmed"])
def make(request: pytest.FixtureRequest) -> Maker:
    kind = TrimmableDecoder if request.param == "trimmed" else BlockDecoder

    def made(slots: int = 8, block: int = 4) -> TorchEngine:
        return engine_of(kind, exact=request.param == "exact", slots=slots, block=block)

    return made


def test_the_engine_keeps_its_interface(make: Maker) -> None:
    engine: Engine = make()
    assert engine.pending == 0
    assert engine.version == 0
    assert engine.advance() == []


def test_every_call_is_returned_once_when_there_are_more_calls_than_slots(make: Maker) -> None:
    engine, calls = make(slots=5), varied_calls(60)
    engine.submit(calls)
    assert engine.pending == 60
    assert sorted(finish(engine)) == list(range(60))
    assert engine.pending == 0


def test_log_probabilities_equal_a_plain_full_forward(make: Maker) -> None:
    engine, calls = make(), varied_calls(60)
    module = small(BlockDecoder)
    engine.submit(calls)
    for number, completion in finish(engine).items():
        expected = expected_logprobs(module, calls[number], completion)
        assert completion.logprobs.dtype == np.float32
        assert np.abs(completion.logprobs - expected).max() < 1e-5


def test_modes_agree_on_tokens_where_no_rounding_decides(make: Maker) -> None:
    engine, reference = make(slots=16), engine_of(BlockDecoder, exact=True, slots=1, block=4)
    calls = varied_calls(60, seed=2)
    engine.submit(calls)
    reference.submit(calls)
    done, expected = finish(engine), finish(reference)
    for number in done:
        assert np.array_equal(done[number].tokens, expected[number].tokens)
        assert np.allclose(done[number].logprobs, expected[number].logprobs, atol=1e-5)


def test_stop_limit_and_allowed_tokens_are_honoured(make: Maker) -> None:
    engine, calls = make(), varied_calls(90, seed=1)
    engine.submit(calls)
    stopped = 0
    for number, completion in finish(engine).items():
        sampling, tokens = calls[number].sampling, completion.tokens.tolist()
        assert 1 <= len(tokens) <= sampling.max_tokens
        assert len(tokens) == len(completion.logprobs) == len(completion.versions)
        assert not set(tokens[:-1]) & set(sampling.stop)
        assert len(tokens) == sampling.max_tokens or tokens[-1] in sampling.stop
        assert not sampling.allowed or set(tokens) <= set(sampling.allowed)
        stopped += len(tokens) < sampling.max_tokens
    assert stopped > 5


def test_a_slot_forgets_the_restrictions_of_its_last_call(make: Maker) -> None:
    engine = make(slots=1, block=1)
    for number in range(30):
        engine.submit([make_call(number, [1, 2], max_tokens=8, allowed=(3,), stop=(4, 5))])
    assert all(set(c.tokens.tolist()) == {3} for c in finish(engine).values())
    engine.submit([make_call(100 + n, [1, 2], max_tokens=8, temperature=9.0) for n in range(30)])
    done = finish(engine)
    assert {len(c.tokens) for c in done.values()} == {8}
    assert len({token for c in done.values() for token in c.tokens.tolist()}) == VOCAB


def test_sampled_tokens_have_the_frequencies_of_the_model(make: Maker) -> None:
    count, prompt = 6000, [3, 1, 4]
    engine = make(slots=64, block=64)
    engine.submit([make_call(n, prompt, max_tokens=2) for n in range(count)])
    tokens = np.array([completion.tokens for completion in finish(engine).values()])
    module = small(BlockDecoder)
    _chi_square(module, prompt, tokens[:, 0])
    likeliest = int(np.bincount(tokens[:, 0]).argmax())
    _chi_square(module, [*prompt, likeliest], tokens[tokens[:, 0] == likeliest, 1])


def _chi_square(module: DecoderLM, prompt: list[int], tokens: np.ndarray) -> None:
    row = torch.tensor([prompt])
    with torch.no_grad():
        hidden = module(row, torch.arange(len(prompt))[None], torch.ones_like(row).int())
        probability = torch.softmax(module.logits(hidden)[0, -1].double(), -1).numpy()
    expected, found = probability * len(tokens), np.bincount(tokens, minlength=VOCAB)
    rare = expected < 5.0  # taken together, as the test wants
    expected = np.append(expected[~rare], expected[rare].sum())
    found = np.append(found[~rare], found[rare].sum())
    statistic = ((found - expected) ** 2 / np.maximum(expected, 1e-9)).sum()
    degrees = len(expected) - 1
    assert degrees >= 3
    assert statistic < degrees + 4.0 * np.sqrt(2.0 * degrees)


def test_equal_prompts_with_different_keys_differ_and_with_equal_keys_agree(make: Maker) -> None:
    engine = make()
    calls = [make_call(n, [5, 6], max_tokens=12, temperature=2.0) for n in range(4)]
    engine.submit(calls)
    first = finish(engine)
    assert len({bits(completion) for completion in first.values()}) == 4
    engine.submit(calls)
    assert {n: bits(c)[0] for n, c in finish(engine).items()} == {
        n: bits(c)[0] for n, c in first.items()
    }


def test_each_token_carries_the_version_that_it_was_sampled_from() -> None:
    engine = TorchEngine(small(TrimmableDecoder), slots=4, max_length=48, exact=False, burst=1)
    engine.submit([make_call(0, [1, 2, 3], max_tokens=6)])
    engine.advance()  # two tokens: the prompt's and one decoded
    engine.load_weights(7, *flatten(small(BlockDecoder, seed=9)))
    assert engine.version == 7
    (completion,) = finish(engine).values()
    assert completion.versions.dtype == np.int32
    assert completion.versions.tolist() == [0, 0, 7, 7, 7, 7]


def test_versions_stay_with_their_call_when_it_moves_to_another_slot() -> None:
    engine = TorchEngine(small(TrimmableDecoder), slots=8, max_length=48, exact=False, burst=1)
    weights = flatten(small(BlockDecoder))
    done = []
    for version in range(20):
        engine.load_weights(version, *weights)
        if version < 8:
            engine.submit([make_call(version, [1, 2], max_tokens=3 + version * 5 % 8)])
        done += engine.advance()
    assert len(done) == 8
    for completion in done:
        start, count = completion.id, len(completion.tokens)
        assert completion.versions.tolist() == [start, *range(start, start + count - 1)]


def test_loaded_weights_are_those_sampled_from(make: Maker) -> None:
    engine, other = make(), small(BlockDecoder, seed=9)
    engine.load_weights(3, *flatten(other))
    call = make_call(0, [1, 2, 3], max_tokens=12)
    engine.submit([call])
    (completion,) = finish(engine).values()
    expected = expected_logprobs(other, call, completion)
    assert np.abs(completion.logprobs - expected).max() < 1e-5
    assert set(completion.versions.tolist()) == {3}


def test_weights_with_another_digest_are_refused_and_the_old_ones_stay(make: Maker) -> None:
    engine = make()
    flat, digest = flatten(small(BlockDecoder, seed=9))
    flat[0] ^= 1
    with pytest.raises(WeightsRefused, match="digest"):
        engine.load_weights(3, flat.numpy(), digest)
    assert engine.version == 0
    call = make_call(0, [1, 2, 3])
    engine.submit([call])
    (completion,) = finish(engine).values()
    expected = expected_logprobs(small(BlockDecoder), call, completion)
    assert np.abs(completion.logprobs - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("prompt", "sampling", "message"),
    [
        ([1] * 49, {}, r"prompt of 49 tokens and a response of up to 5 exceed .* of 48 by 6"),
        ([1] * 44, {}, r"by 1\n  try: max_tokens=4"),
        ([], {}, r"prompt: expects int64 \[n\] with n >= 1"),
        ([VOCAB], {}, "prompt: token 17 is outside the vocabulary of 17"),
        ([-1], {}, "prompt: token -1 is outside"),
        ([1], {"max_tokens": 0}, "max_tokens: expects 1 or more, got 0"),
        ([1], {"temperature": -1.0}, "temperature: expects 0 or more"),
        ([1], {"temperature": float("nan")}, "temperature: expects 0 or more"),
        ([1], {"stop": (VOCAB,)}, r"stop: \[17\] leaves the vocabulary"),
        ([1], {"allowed": (-1, 2)}, r"allowed: \[-1, 2\] leaves the vocabulary"),
    ],
)
def test_a_call_that_cannot_be_served_is_refused_by_name(
    make: Maker, prompt: list[int], sampling: dict[str, object], message: str
) -> None:
    engine = make()
    with pytest.raises(CallRefused, match=message) as refused:
        engine.submit([make_call(1, [1]), make_call(2, prompt, **sampling)])
    assert refused.value.call_id == 2
    assert engine.pending == 0


def test_a_call_may_use_the_whole_length(make: Maker) -> None:
    engine = make()
    engine.submit([make_call(0, [1] * 40, max_tokens=8), make_call(1, [1] * 47, max_tokens=1)])
    done = finish(engine)
    assert [len(done[0].tokens), len(done[1].tokens)] == [8, 1]


def test_weights_that_give_no_numbers_end_the_run_with_their_version(make: Maker) -> None:
    engine, broken = make(), small(BlockDecoder)
    with torch.no_grad():
        broken.norm.weight.fill_(torch.nan)
    engine.load_weights(5, *flatten(broken))
    engine.submit([make_call(0, [1])])
    with pytest.raises(RunFailed, match="version 5 of the weights gives logits that are not"):
        finish(engine)


def test_a_module_that_cannot_be_rolled_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Linear cannot .* no .*decode"):
        TorchEngine(nn.Linear(2, 2), slots=1, max_length=8, exact=False)


def test_short_calls_that_keep_coming_do_not_starve_a_long_one(make: Maker) -> None:
    engine = make(slots=4)
    engine.submit([make_call(0, [1], max_tokens=20)])
    for number in range(1, 40):
        engine.submit([make_call(number, [2], max_tokens=1)])
        if any(completion.id == 0 for completion in engine.advance()):
            return
    pytest.fail("the long call made no progress")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 100), st.integers(1, 9))
def test_calls_that_arrive_at_any_time_are_returned_once_and_right_when_trimmed(
    gaps: list[int], seed: int, slots: int
) -> None:
    module = small(TrimmableDecoder)
    engine = TorchEngine(module, slots=slots, max_length=48, exact=False)
    calls = varied_calls(len(gaps), seed=seed)
    done = []
    for gap, call in zip(gaps, calls, strict=True):
        engine.submit([call])
        done += [completion for _ in range(gap) for completion in engine.advance()]
    done += finish(engine).values()
    assert sorted(completion.id for completion in done) == list(range(len(gaps)))
    for completion in done:
        expected = expected_logprobs(module, calls[completion.id], completion)
        assert np.abs(completion.logprobs - expected).max() < 1e-5


def test_a_module_may_read_ids_that_it_cannot_say() -> None:
    torch.manual_seed(0)
    config = DecoderConfig(vocab=17, outputs=5, layers=1, width=16, heads=2, max_length=16)
    engine = TorchEngine(DecoderLM(config), slots=2, max_length=16, exact=False)
    prompt = np.array([1, 16], np.int64)
    call = Call(id=0, key=bytes(16), prompt=prompt, sampling=Sampling(max_tokens=8))
    engine.submit([call])
    completion = finish(engine)[0]
    assert completion.tokens.max() < 5
    beyond = Call(id=1, key=bytes(16), prompt=prompt + 1, sampling=Sampling(max_tokens=1))
    with pytest.raises(CallRefused, match="token 17 is outside the vocabulary of 17"):
        engine.submit([beyond])
