"""Draws depend on identities alone, and stay what they are."""

import numpy as np
import pytest

from flowgraph.runtime.randomness import UniformSource, generator, key, order


def test_keys_tell_types_and_splits_apart() -> None:
    keys = [key(1), key("1"), key(b"1"), key(1, 1), key("1", "1"), key("11"), key("1", "", "1")]
    assert len(set(keys)) == len(keys)
    assert all(len(one) == 16 for one in keys)


def test_a_numpy_integer_is_the_same_part_as_a_plain_one() -> None:
    assert key("sample", int(np.int64(7))) == key("sample", np.int64(7).item())
    assert key("sample", np.int64(7)) == key("sample", 7)  # type: ignore[arg-type]


def test_a_float_is_no_part_of_a_key() -> None:
    with pytest.raises(TypeError):
        key("temperature", 1.0)  # type: ignore[arg-type]


def test_an_epoch_reads_every_sample_once_in_an_order_of_its_own() -> None:
    first, second, other = order(3, 0, 1000), order(3, 1, 1000), order(4, 0, 1000)
    assert first.dtype == np.int64
    assert np.array_equal(np.sort(first), np.arange(1000))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert np.array_equal(first, order(3, 0, 1000))


def test_an_empty_source_has_an_empty_order() -> None:
    assert order(0, 0, 0).tolist() == []


def test_orders_and_uniforms_never_change_with_a_release() -> None:
    # Runs are resumed and compared across versions: a change here must be a decision.
    assert order(0, 0, 8).tolist() == ORDER
    assert UniformSource().draw(key(0, "pin"), 3).tolist() == UNIFORMS


def test_uniforms_depend_on_the_identity_alone_and_a_longer_draw_starts_with_the_shorter() -> None:
    source = UniformSource()
    long = source.draw(key("a"), 50)
    source.draw(key("b"), 7)
    assert np.array_equal(source.draw(key("a"), 13), long[:13])
    assert np.array_equal(UniformSource().draw(key("a"), 50), long)
    assert not np.array_equal(source.draw(key("b"), 50), long)


def test_uniforms_are_philox_as_numpy_defines_it() -> None:
    identity = key("philox")
    fresh = np.random.Philox(key=int.from_bytes(identity, "little")).random_raw(9)
    expected = (fresh >> np.uint64(11)).astype(np.float64) * 2.0**-53
    assert np.array_equal(UniformSource().draw(identity, 9), expected)


def test_uniforms_fill_the_unit_interval_evenly() -> None:
    source = UniformSource()
    drawn = np.concatenate([source.draw(key("even", i), 3) for i in range(10_000)])
    counts = np.histogram(drawn, bins=20, range=(0.0, 1.0))[0]
    expected = len(drawn) / 20
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-square, 19 degrees, p = .001


def test_a_generator_is_reproducible() -> None:
    assert generator(key("g")).random() == generator(key("g")).random()
    assert generator(key("g")).random() != generator(key("h")).random()


def test_an_identity_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes, got 3"):
        UniformSource().draw(b"abc", 1)


ORDER = [7, 2, 4, 6, 0, 1, 3, 5]
UNIFORMS = [0.03001664202679566, 0.15478153539512707, 0.553885453167062]
