"""Weights on disk, and the digest that tells runs apart."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from flowgraph.runtime.trainer.saving import save, weights_digest
from tests.runtime.trainer.graphs import rank_of, text_plan


def module(*, bias: float = 0.0) -> nn.Module:
    linear = nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.arange(6.0).view(2, 3))
        linear.bias.fill_(bias)
    return linear


def test_a_digest_is_of_names_dtypes_shapes_and_bytes() -> None:
    digest = weights_digest(module())
    assert weights_digest(module()) == digest
    assert weights_digest(module(bias=-0.0)) != digest
    assert weights_digest(module().double()) != digest
    assert weights_digest(nn.Sequential(module())) != digest
    reshaped = module()
    reshaped.register_parameter("weight", nn.Parameter(torch.arange(6.0).view(3, 2)))
    assert weights_digest(reshaped) != digest


def test_saved_weights_are_the_parameters_by_name(tmp_path: Path) -> None:
    rank = rank_of(text_plan())
    rank.save(tmp_path / "lm.safetensors")
    saved = load_file(tmp_path / "lm.safetensors")
    expected = dict(rank.module.named_parameters())
    assert saved.keys() == expected.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in expected.items())
    assert [path.name for path in tmp_path.iterdir()] == ["lm.safetensors"]


def test_saving_replaces_what_was_there_whole(tmp_path: Path) -> None:
    for bias in (1.0, 2.0):
        save(module(bias=bias), tmp_path / "m.safetensors")
    assert load_file(tmp_path / "m.safetensors")["bias"].tolist() == [2.0, 2.0]
