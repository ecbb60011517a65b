"""In exact mode a call's result is a function of the weights and the call, bit for bit."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flowgraph.ir.errors import InternalError
from flowgraph.models.configs import DecoderConfig
from flowgraph.models.kv_cache import KeyValues, KVCache
from flowgraph.runtime.engine.interface import Call
from flowgraph.runtime.engine.torch_engine import TorchEngine
from flowgraph.runtime.weights import flatten
from tests.runtime.engine.calls import bits, finish, make_call, varied_calls
from tests.runtime.engine.models import BlockDecoder, TrimmableDecoder, small

Bits = dict[int, tuple[bytes, bytes]]

CALLS = varied_calls(40, seed=3)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """What exact mode assumes of its process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(before)


def exact_engine(slots: int = 24) -> TorchEngine:
    return TorchEngine(
        small(BlockDecoder), slots=slots, max_length=48, exact=True, block=8, prefill_rows=4
    )


def roll_out(calls: list[Call], engine: TorchEngine | None = None) -> Bits:
    engine = engine or exact_engine()
    engine.submit(calls)
    return {number: bits(completion) for number, completion in finish(engine).items()}


@pytest.fixture(scope="module")
def together(one_thread: None) -> Bits:
    return roll_out(CALLS)


def test_a_call_alone_gives_what_it_gives_among_others(together: Bits) -> None:
    for call in CALLS[:16]:
        assert roll_out([call]) == {call.id: together[call.id]}


def test_calls_in_another_order_give_the_same(together: Bits) -> None:
    assert roll_out(CALLS[::-1]) == together
    assert roll_out(sorted(CALLS, key=lambda call: call.key)) == together


def test_two_engines_give_what_one_gives(together: Bits) -> None:
    assert roll_out(CALLS[::2]) | roll_out(CALLS[1::2]) == together


def test_the_number_of_slots_does_not_matter(together: Bits) -> None:
    for slots in (1, 9, 64):
        assert roll_out(CALLS, exact_engine(slots)) == together


def test_a_cache_full_of_other_calls_leftovers_does_not_matter(together: Bits) -> None:
    engine = exact_engine()
    roll_out(varied_calls(50, seed=77, longest=36), engine)
    assert roll_out(CALLS, engine) == together


class ShapeRecorder(TrimmableDecoder):
    """A decoder that notes the shape of every forward."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.shapes: set[tuple[str, int, int]] = set()

    def prefill(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, KeyValues]:
        self.shapes.add(("prefill", *tokens.shape))
        return super().prefill(tokens, lengths)

    def decode(
        self, tokens: Tensor, positions: Tensor, cache: KVCache, span: int | None = None
    ) -> Tensor:
        self.shapes.add(("decode", len(tokens), cache.max_length if span is None else span))
        return super().decode(tokens, positions, cache, span)


def test_every_forward_has_one_of_few_fixed_shapes() -> None:
    module = small(ShapeRecorder)
    assert isinstance(module, ShapeRecorder)
    engine = TorchEngine(module, slots=24, max_length=48, exact=True, block=8, prefill_rows=4)
    for call in CALLS:
        engine.submit([call])
        engine.advance()
    finish(engine)
    prefills = {("prefill", 4, width) for width in (8, 16, 32)}
    assert module.shapes == {("decode", 8, 48), *prefills}


def test_a_cache_that_could_be_trimmed_is_not(together: Bits) -> None:
    module = small(TrimmableDecoder)
    engine = TorchEngine(module, slots=24, max_length=48, exact=True, block=8, prefill_rows=4)
    assert roll_out(CALLS, engine) == together


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(len(CALLS))), st.data())
def test_arrival_and_placement_do_not_matter(order: list[int], data: st.DataObject) -> None:
    engines = [exact_engine(8), exact_engine(16)]
    done: Bits = {}
    for start in range(0, len(order), 5):
        engine = data.draw(st.sampled_from(engines))
        engine.submit([CALLS[number] for number in order[start : start + 5]])
        for _ in range(data.draw(st.integers(0, 4))):
            done |= {completion.id: bits(completion) for completion in engine.advance()}
    for engine in engines:
        done |= {number: bits(completion) for number, completion in finish(engine).items()}
    assert done == REFERENCE


REFERENCE: Bits = {}


@pytest.fixture(autouse=True, scope="module")
def reference(together: Bits) -> None:
    REFERENCE.update(together)


def test_weights_do_not_change_under_a_pending_call() -> None:
    engine = exact_engine()
    engine.submit([make_call(0, [1, 2])])
    with pytest.raises(InternalError, match="version 1 arrives while 1 calls are pending"):
        engine.load_weights(1, *flatten(small(BlockDecoder, seed=1)))
    finish(engine)
    engine.load_weights(1, *flatten(small(BlockDecoder, seed=1)))
    assert engine.version == 1
