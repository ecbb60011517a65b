"""Contributions of units add up once each, and in exact mode in a tree over their order."""

import pytest
import torch
from torch import Tensor, nn

from flowgraph.ir.errors import InternalError
from flowgraph.runtime.trainer.collective import Alone
from flowgraph.runtime.trainer.flat_parameters import FlatParameters
from flowgraph.runtime.trainer.gradients import Gradients, add_pairwise


def flat() -> FlatParameters:
    module = nn.Linear(3, 5)
    return FlatParameters(module, ["weight", "bias"])


def test_a_module_computes_the_same_with_flat_parameters() -> None:
    module, x = nn.Linear(3, 5), torch.randn(4, 3)
    before = module(x)
    shared = FlatParameters(module, ["weight"])
    assert torch.equal(module(x), before)
    module(x).sum().backward()
    assert torch.equal(shared.gradient[:15].view(5, 3), x.sum(0).expand(5, 3))
    with torch.no_grad():
        shared.weights.zero_()
    assert torch.equal(module(x), module.bias.expand(4, 5))


def test_leaves_are_added_in_the_tree_that_their_number_decides() -> None:
    torch.manual_seed(0)
    a, b, c, d, e, f, g = leaves = list(torch.randn(7, 1000) * 10 ** torch.randn(7, 1))
    expected = ((a + b) + (c + d)) + ((e + f) + g)
    total = torch.empty(1000)
    add_pairwise((leaf.clone() for leaf in leaves), out=total)
    assert torch.equal(total, expected)
    assert not torch.equal(total, a + b + c + d + e + f + g)


def test_no_leaves_add_up_to_zero() -> None:
    total = torch.ones(4)
    add_pairwise(iter(()), out=total)
    assert torch.equal(total, torch.zeros(4))


def contribute(gradients: Gradients, shared: FlatParameters, unit: int, value: Tensor) -> None:
    with gradients.collecting("train", [unit], (0, 0)):
        shared.gradient += value


def test_exact_sums_do_not_depend_on_the_order_of_arrival() -> None:
    torch.manual_seed(0)
    values = torch.randn(5, 32) * 10 ** torch.randn(5, 1)
    owners = [(unit, 0) for unit in range(5)]
    sums = []
    for arrival in ([0, 1, 2, 3, 4], [3, 0, 4, 2, 1]):
        shared = flat()
        gradients = Gradients(shared, exact=True, tasks=["train"])
        for unit in arrival:
            contribute(gradients, shared, unit, values[unit])
        sums.append(gradients.reduce(owners, Alone()).clone())
    assert torch.equal(*sums)


def test_contributions_of_one_unit_are_added_in_the_tasks_order() -> None:
    big, small = torch.full((32,), 1e8), torch.full((32,), 1.0)
    values = {"a": big, "b": -big, "c": small}
    sums = []
    for arrival in ("abc", "cba"):
        shared = flat()
        gradients = Gradients(shared, exact=True, tasks=["a", "b", "c"])
        for task in arrival:
            with gradients.collecting(task, [0], (0, 0)):
                shared.gradient += values[task]
        sums.append(gradients.reduce([(0, 0)], Alone()).clone())
    assert torch.equal(sums[0], small)
    assert torch.equal(*sums)


def test_an_owned_unit_that_reached_nothing_adds_zero() -> None:
    shared = flat()
    gradients = Gradients(shared, exact=True, tasks=["train"])
    contribute(gradients, shared, 1, torch.ones(32))
    assert torch.equal(gradients.reduce([(0, 0), (1, 0)], Alone()), torch.ones(32))


@pytest.mark.parametrize("owners", [[(0, 0)], [(0, 0), (1, 0), (1, 0)]])
def test_a_lost_or_doubled_unit_is_our_bug(owners: list[tuple[int, int]]) -> None:
    shared = flat()
    gradients = Gradients(shared, exact=True, tasks=["train"])
    contribute(gradients, shared, 0, torch.ones(32))
    contribute(gradients, shared, 1, torch.ones(32))
    with pytest.raises(InternalError, match="owners miss units"):
        gradients.reduce(owners, Alone())


def test_a_unit_trained_twice_is_our_bug() -> None:
    shared = flat()
    gradients = Gradients(shared, exact=True, tasks=["train"])
    contribute(gradients, shared, 0, torch.ones(32))
    with pytest.raises(InternalError, match="unit 0 has a gradient already"):
        contribute(gradients, shared, 0, torch.ones(32))


def test_a_gradient_of_another_part_before_the_update_is_our_bug() -> None:
    shared = flat()
    gradients = Gradients(shared, exact=False, tasks=["train"])
    contribute(gradients, shared, 0, torch.ones(32))
    with (
        pytest.raises(InternalError, match=r"step and part \(0, 1\) came before the update"),
        gradients.collecting("train", [1], (0, 1)),
    ):
        pass


def test_a_part_starts_from_zero_after_the_last_one() -> None:
    shared = flat()
    gradients = Gradients(shared, exact=False, tasks=["train"])
    contribute(gradients, shared, 0, torch.ones(32))
    assert torch.equal(gradients.reduce([], Alone()), torch.ones(32))
    assert torch.equal(gradients.reduce([], Alone()), torch.zeros(32))
    contribute(gradients, shared, 0, torch.ones(32))
    assert torch.equal(gradients.reduce([], Alone()), torch.ones(32))
