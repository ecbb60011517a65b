"""What a description says of time and memory, by hand-made sums."""

from typing import Any

import pytest

from flowgraph.ir.graph import FunctionRef, Module
from flowgraph.runtime.policy.roofline import Device, Shape, attended, kv_bytes, shape_of
from flowgraph.runtime.policy.step_time import EngineTimes, apply_times, engine_times, train_times


def module(**said: Any) -> Module:
    description = {"parameters": 1000, "layers": 2, "width": 8, "heads": 4, **said}
    return Module(name="m", factory=FunctionRef(module="m", qualname="m"), description=description)


def shape(**said: Any) -> Shape:
    return shape_of(module(**said))


DEVICE = Device(flops={"float32": 1e6}, bandwidth=1e5)


def test_a_causal_token_attends_to_half_of_what_a_vits_token_does() -> None:
    weights = 2 * 1000
    assert shape(kind="decoder").flops_a_token(10) == weights + 2 * 2 * 8 * 10
    assert shape(kind="vit").flops_a_token(10) == weights + 4 * 2 * 8 * 10
    assert shape(kind="generic").flops_a_token(10) == weights + 2 * 2 * 8 * 10


@pytest.mark.parametrize("segments", [(5, 5, 5), (1, 3, 8), (2, 30)])
def test_attention_over_segments_goes_by_the_sum_of_their_squares(
    segments: tuple[int, ...],
) -> None:
    mean = sum(segments) / len(segments)
    variance = sum((n - mean) ** 2 for n in segments) / len(segments)
    one = shape(kind="decoder")
    by_segment = sum(n * one.flops_a_token(n) for n in segments)
    at_once = sum(segments) * one.flops_a_token(attended(mean, variance**0.5))
    assert at_once == pytest.approx(by_segment)


def test_a_frozen_module_is_computed_forward_only() -> None:
    one = shape(kind="decoder")
    trained = train_times(one, DEVICE, length=10, a_record=1.0)
    encoder = apply_times(one, DEVICE, length=10, a_record=1.0)
    assert trained.weight_s == pytest.approx(3 * encoder.weight_s)
    assert trained.weight_s == pytest.approx(encoder.weight_s + encoder.backward_weight_s)


def test_decoding_is_bound_by_the_bytes_of_weights_and_caches_until_there_are_many_rows() -> None:
    size = kv_bytes(module(kv_heads=4, head_width=2))
    assert size == 2 * 2 * 4 * 2 * 4  # keys and values, layers, heads, width, float32
    fast = Device(flops={"float32": 1e12}, bandwidth=1e5)
    one = engine_times(shape(), fast, prompt=10, response=4, kv_bytes=size)
    assert one.read_s == 1000 * 4 / 1e5
    assert one.row_read_s == size * (10 + 4 / 2) / 1e5
    assert one.iteration(8) == pytest.approx(one.iteration_s + one.read_s + 8 * one.row_read_s)
    slow = Device(flops={"float32": 1e3}, bandwidth=1e9)
    other = engine_times(shape(), slow, prompt=10, response=4, kv_bytes=size)
    # The next token looks at all that is there: 12 of them in the mean.
    assert other.row_s == (2 * 1000 + 4 * 2 * 8 * 12) / 1e3
    assert other.iteration(8) == pytest.approx(other.iteration_s + 8 * other.row_s)


def test_measured_iterations_have_the_reads_in_them() -> None:
    assert EngineTimes(iteration_s=2.0, row_s=0.5).iteration(4) == 4.0
