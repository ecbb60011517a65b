"""Whatever the verifier lets pass can be explained: no plan file breaks `inspect` or `diff`."""

import random

import pytest

from flowgraph.inspect.differences import differences
from flowgraph.inspect.facts import facts_of
from flowgraph.inspect.page import page
from flowgraph.inspect.plain import described
from flowgraph.inspect.text import told
from flowgraph.ir.binary import encode
from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.plan import Plan
from flowgraph.ir.verify import verify_flow, verify_plan
from flowgraph.passes import compile_graph
from tests.fuzz.retyped import spoil_typed, words_of
from tests.passes.graphs import gpus, laptop, marl

MUTANTS = 200


def is_legal(plan: Plan) -> bool:
    """Whether a plan file can hold it, and the verifier lets it pass."""
    try:
        encode(plan)
        verify_flow(plan.graph)
        verify_plan(plan)
    except FlowgraphError:
        return False
    return True


@pytest.fixture(scope="module")
def legal_mutants() -> list[Plan]:
    plans = (compile_graph(marl(), laptop()), compile_graph(marl(), gpus(1, 3)))
    words = tuple(sorted(set(words_of(plans))))
    draw = random.Random(0)
    made = [spoil_typed(draw.choice(plans), words, draw) for _ in range(MUTANTS)]
    return [plan for plan in made if is_legal(plan)]


def test_a_legal_mutant_is_explained(legal_mutants: list[Plan]) -> None:
    assert len(legal_mutants) > MUTANTS / 10
    for plan in legal_mutants:
        facts = facts_of(plan)
        assert told(facts)
        assert page(facts).startswith("<!doctype html>")
        assert described(facts)["graph"] == plan.graph.name


def test_a_legal_mutant_is_compared_either_way(legal_mutants: list[Plan]) -> None:
    base = facts_of(compile_graph(marl(), laptop()))
    for plan in legal_mutants:
        facts = facts_of(plan)
        assert all(found.said for found in differences(base, facts))
        assert all(found.said for found in differences(facts, base))
