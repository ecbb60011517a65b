"""Laws of the two forms: what is written reads back the same, and prints the same everywhere."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings

from flowgraph.ir.binary import decode, encode, plan_hash
from flowgraph.ir.cluster import Cluster
from flowgraph.ir.graph import Graph
from flowgraph.ir.plain import from_plain, to_plain
from flowgraph.ir.plan import Plan
from flowgraph.ir.text import parse, parse_graph, print_text
from tests.ir.strategies import clusters, graphs, plans
from tests.passes.graphs import marl, vlm


@settings(max_examples=100, deadline=None)
@given(graphs)
def test_a_printed_graph_reads_back_equal(graph: Graph) -> None:
    assert parse(print_text(graph)) == graph


@settings(max_examples=60, deadline=None)
@given(plans)
def test_a_printed_plan_reads_back_equal(plan: Plan) -> None:
    assert parse(print_text(plan)) == plan


@settings(max_examples=50, deadline=None)
@given(clusters)
def test_a_printed_cluster_reads_back_equal(cluster: Cluster) -> None:
    assert parse(print_text(cluster)) == cluster


@settings(max_examples=60, deadline=None)
@given(plans)
def test_an_encoded_plan_decodes_equal_and_equal_plans_are_equal_bytes(plan: Plan) -> None:
    again = decode(encode(plan))
    assert again == plan
    assert encode(again) == encode(plan)
    assert plan_hash(again) == plan_hash(plan)


@settings(max_examples=50, deadline=None)
@given(plans)
def test_plain_data_keep_the_types_of_numbers(plan: Plan) -> None:
    # 1 == 1.0 == True, so equality alone would not see a change of type.
    assert repr(from_plain(Plan, to_plain(plan))) == repr(plan)


@pytest.mark.parametrize("graph", [marl(), vlm()], ids=["marl", "vlm"])
def test_printing_is_stable_under_reading(graph: Graph) -> None:
    text = print_text(graph)
    assert print_text(parse_graph(text)) == text
    assert parse_graph(text) == graph


def test_the_strategies_give_every_field_of_both_dialects_some_value() -> None:
    # A new field that no generated value has would be outside all laws of this file.
    seen: set[str] = set()
    classes: set[type] = set()

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(plans)
    def collect(plan: Plan) -> None:
        waiting: list[Any] = [plan]
        while waiting:
            value = waiting.pop()
            if is_dataclass(value) and not isinstance(value, type):
                classes.add(type(value))
                for field in fields(value):
                    found = getattr(value, field.name)
                    waiting.append(found)
                    if found not in (field.default, {}, (), None):
                        seen.add(f"{type(value).__name__}.{field.name}")
            elif isinstance(value, tuple):
                waiting += value

    collect()
    wanted = {f"{cls.__name__}.{field.name}" for cls in classes for field in fields(cls)}
    assert sorted(wanted - seen) == []
