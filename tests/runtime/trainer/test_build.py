"""Modules come from their declarations alone, and train as far as declared."""

import pytest
import torch

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import Module
from flowgraph.runtime.trainer.build import build_module, select_trainable
from flowgraph.runtime.trainer.saving import weights_digest
from tests.runtime.trainer.graphs import decoder, toy


def declared(name: str = "lm", **changes: object) -> Module:
    return Module(name=name, **{"factory": decoder(), **changes})  # type: ignore[arg-type]


def test_weights_follow_from_seed_and_name_and_from_nothing_else() -> None:
    first = weights_digest(build_module(declared(), "", 3))
    torch.rand(5)
    assert weights_digest(build_module(declared(), "", 3)) == first
    assert weights_digest(build_module(declared(), "", 4)) != first
    assert weights_digest(build_module(declared("other"), "", 3)) != first


def test_building_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build_module(declared(), "", 3)
    assert torch.equal(torch.rand(3), expected)


def test_a_module_has_its_declared_dtype_and_is_in_eval_mode() -> None:
    module = build_module(declared(dtype="bfloat16"), "", 0)
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    assert not module.training


def test_a_dtype_that_is_no_floating_one_is_refused() -> None:
    with pytest.raises(GraphError, match="module 'lm': dtype 'int64' is no floating dtype"):
        build_module(declared(dtype="int64"), "", 0)


def test_a_factory_that_gives_no_module_is_refused() -> None:
    with pytest.raises(GraphError, match="expects to return a torch module, got str"):
        build_module(declared(factory=toy("not_a_module")), "", 0)


def test_patterns_choose_what_trains() -> None:
    lm = declared(trainable=("blocks.1.*", "norm.weight"))
    module = build_module(lm, "", 0)
    names = select_trainable(module, lm)
    assert names == tuple(sorted(names))
    assert "norm.weight" in names
    assert all(name.startswith(("blocks.1.", "norm.")) for name in names)
    trains = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert trains == set(names)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("heads.*",), "trainable pattern 'heads.\\*' names no parameter; there are blocks.0"),
        ((), "no trainable pattern is given"),
    ],
)
def test_patterns_that_choose_nothing_are_refused(patterns: tuple[str, ...], message: str) -> None:
    lm = declared(trainable=patterns)
    with pytest.raises(GraphError, match=message):
        select_trainable(build_module(lm, "", 0), lm)
