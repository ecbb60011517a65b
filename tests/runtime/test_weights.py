"""Weights travel as one buffer and arrive whole or not at all."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from flowgraph.runtime.weights import WeightsRefused, flatten, load_flat, parameters
from tests.runtime.engine.models import BlockDecoder, small


def mixed(seed: int) -> nn.Module:
    """Parameters of odd sizes in two dtypes."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7, bias=False))
    module[1].to(torch.bfloat16)
    return module


def values(module: nn.Module) -> list[list[float]]:
    return [tensor.double().flatten().tolist() for tensor in parameters(module).values()]


def test_a_loaded_module_has_the_weights_of_the_other_bit_for_bit() -> None:
    for make in (mixed, lambda seed: small(BlockDecoder, seed=seed)):
        source, target = make(0), make(1)
        assert values(source) != values(target)
        load_flat(target, *flatten(source))
        assert values(source) == values(target)
        assert flatten(source)[1] == flatten(target)[1]


def test_a_buffer_may_be_a_read_only_view_of_any_dtype_and_alignment() -> None:
    source, target = mixed(0), mixed(1)
    flat, digest = flatten(source)
    shifted = np.zeros(flat.numel() + 1, np.uint8)[1:]
    shifted[:] = flat.numpy()
    view = flat.numpy().view(np.float32)
    view.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for buffer in (view, shifted, flat.view(torch.int64)):
            load_flat(mixed(2), buffer, digest)
        load_flat(target, view, digest)
    assert values(source) == values(target)


def test_a_damaged_buffer_is_refused_and_changes_nothing() -> None:
    target = mixed(1)
    before = values(target)
    flat, digest = flatten(mixed(0))
    flat[17] ^= 1
    with pytest.raises(WeightsRefused, match=r"Sequential: digest .* expects [0-9a-f]{32}, got"):
        load_flat(target, flat, digest)
    assert values(target) == before


def test_a_buffer_of_another_module_is_refused_with_both_sizes() -> None:
    flat, digest = flatten(nn.Linear(4, 4))
    with pytest.raises(WeightsRefused, match=r"3 parameters in \d+ bytes, got a buffer of \d+"):
        load_flat(mixed(0), flat, digest)


def test_the_digest_tells_equal_weights_under_other_names_from_swapped_ones() -> None:
    one, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    pair = nn.ModuleDict({"a": one, "b": other})
    swapped = nn.ModuleDict({"a": other, "b": one})
    assert flatten(pair)[1] != flatten(swapped)[1]


def test_a_tied_parameter_travels_once() -> None:
    module = small(BlockDecoder)
    names = list(parameters(module))
    assert names == sorted(names)
    unpadded = 4 * module.config.parameters
    assert unpadded <= flatten(module)[0].numel() < unpadded + 4 * module.embedding.weight.numel()


def test_a_buffer_can_be_reused() -> None:
    flat, first = flatten(mixed(0))
    again, second = flatten(mixed(1), out=flat)
    assert again is flat
    assert first != second == flatten(mixed(1))[1]
