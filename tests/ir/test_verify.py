"""The verifier as a whole: what is legal, which fault is raised, and where."""

from dataclasses import replace

import pytest

from flowgraph.ir.errors import GraphError, PlanError
from flowgraph.ir.graph import Graph
from flowgraph.ir.ops import OPS
from flowgraph.ir.verify import flow_faults, plan_faults, verify_flow, verify_plan
from flowgraph.ir.verify.flow import RULES
from flowgraph.passes import compile_graph
from tests.ir.rules.changes import stage
from tests.ir.rules.plan_changes import VLM, schedule
from tests.passes.graphs import filtered, gpus, laptop, marl, vlm

GRAPHS = [marl(), vlm(), filtered()]
NAMES = ["marl", "vlm", "filtered"]


@pytest.mark.parametrize("graph", GRAPHS, ids=NAMES)
def test_legal_graphs_have_no_faults(graph: Graph) -> None:
    assert list(flow_faults(graph)) == []


@pytest.mark.parametrize("graph", GRAPHS, ids=NAMES)
def test_compiled_plans_have_no_faults(graph: Graph) -> None:
    for cluster in (laptop(), gpus(), gpus(3, 4)):
        assert list(plan_faults(compile_graph(graph, cluster))) == []


def test_the_first_fault_is_raised_at_the_users_line() -> None:
    with pytest.raises(GraphError) as caught:
        verify_flow(stage(vlm(), "pack", attributes={"token": 1}))
    assert str(caught.value).splitlines()[0] == "example.py:6:"
    assert caught.value.node == 'stage "pack"'
    assert caught.value.term == "token"


def test_the_first_fault_of_a_plan_is_raised() -> None:
    with pytest.raises(PlanError, match="expects at least 1"):
        verify_plan(schedule(VLM, unit=0))


def test_a_rule_does_not_run_on_what_an_earlier_kind_of_rule_refused() -> None:
    broken = stage(vlm(), "pack", attributes={"tokens": "many"})
    broken = stage(broken, "train-lm", attributes={"batch": 0})
    assert [fault.what for fault in flow_faults(broken)] == [
        "stage 'pack': expects tokens of kind int, got 'many'"
    ]


def test_all_faults_of_one_kind_are_told_together() -> None:
    broken = stage(vlm(batch=0), "pack", attributes={"tokens": 0})
    assert [fault.node for fault in flow_faults(broken)] == ['stage "pack"', 'stage "train-lm"']


def test_a_fault_of_the_cluster_comes_before_those_of_the_plan() -> None:
    broken = replace(schedule(VLM, unit=0), cluster=replace(VLM.cluster, nodes=()))
    assert [fault.what for fault in plan_faults(broken)] == [
        "cluster 'laptop': expects a node, got none"
    ]


def test_every_operation_has_an_entry_in_the_table_of_rules() -> None:
    assert set(RULES) == set(OPS)
