"""Every rule of the verifier has a golden file: what it says of each thing that breaks it.

`golden/FORM/RULE.txt` is the rule's sentence; behind the line `-----` stands, for each case of
`rules/`, the whole error with the printed graph. Rewrite with `pytest --update-golden`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flowgraph.ir.diagnostics import render
from flowgraph.ir.errors import FlowgraphError
from flowgraph.ir.graph import Graph
from flowgraph.ir.index import index
from flowgraph.ir.plan import Plan
from flowgraph.ir.verify import flow_faults, plan_faults
from flowgraph.ir.verify.cluster import CLUSTER_RULES
from flowgraph.ir.verify.flow import GRAPH_RULES, RULES
from flowgraph.ir.verify.plan import PLAN_RULES
from flowgraph.ir.verify.plan_index import plan_index
from flowgraph.ir.verify.runnable import RUN_RULES, unrunnable
from flowgraph.ir.verify.schema import SCHEMA_RULES
from flowgraph.ir.verify.training import STEP_RULES
from flowgraph.ir.verify.types import TYPE_RULES
from tests.conftest import Golden
from tests.ir.rules import (
    cluster,
    declared,
    dispatch,
    groups,
    joins,
    names,
    records,
    rows,
    runnable,
    schema,
    training,
    types,
)

UNPRINTABLE = "attribute's data"
"""The case whose graph holds what no text can."""

GOLDEN = Path(__file__).parent / "golden"
Rule = Callable[..., Iterator[FlowgraphError]]
STAGE_RULES: tuple[Rule, ...] = tuple({rule: 0 for op in RULES.values() for rule in op})
FLOW: tuple[Rule, ...] = (*SCHEMA_RULES, *GRAPH_RULES, *TYPE_RULES, *STAGE_RULES, *STEP_RULES)
PLAN: tuple[Rule, ...] = (*CLUSTER_RULES, *PLAN_RULES)
THEMES = (names, declared, schema, types, records, rows, joins, training)
FLOW_CASES = {rule: cases for theme in THEMES for rule, cases in theme.CASES.items()}
PLAN_CASES = {**cluster.CASES, **groups.CASES, **dispatch.CASES}


def named(rule: Rule) -> str:
    return rule.__name__


def flow_said(rule: Rule, graph: Graph) -> list[FlowgraphError]:
    """What this rule alone says of the graph."""
    at = index(graph)
    if rule in GRAPH_RULES or rule in STEP_RULES:
        return list(rule(at))
    if rule in TYPE_RULES:
        return [fault for stream in graph.streams for fault in rule(stream)]
    obey = [s for s in graph.stages if rule in SCHEMA_RULES or rule in RULES[s.op]]
    return [fault for stage in obey for fault in rule(at, stage)]


def plan_said(rule: Rule, plan: Plan) -> list[FlowgraphError]:
    return list(rule(plan.cluster if rule in CLUSTER_RULES else plan_index(plan)))


def check(golden: Golden, file: Path, said: dict[str, tuple[Any, list[FlowgraphError]]]) -> None:
    """The golden file, and that each error has all its parts."""
    shown = []
    for title, (thing, faults) in said.items():
        assert faults, f"{title}: the rule says nothing"
        shown += [f"== {title}", *(render(fault, thing) for fault in faults), ""]
        for fault in faults:
            assert fault.hint, f"{title}: no smallest change: {fault}"
            assert fault.node, f"{title}: no place: {fault}"
            assert "^" in render(fault, thing) or title == UNPRINTABLE, f"{title}: not underlined"
    golden(file, "\n".join(shown))


@pytest.mark.parametrize("rule", FLOW, ids=named)
def test_each_rule_of_a_graph_says_what_its_golden_file_shows(rule: Rule, golden: Golden) -> None:
    said = {}
    for title, change in FLOW_CASES[named(rule)].items():
        graph = change()
        said[title] = (graph, flow_said(rule, graph))
        told = [str(fault) for fault in flow_faults(graph)]
        assert str(said[title][1][0]) in told, f"{title}: another rule comes first: {told}"
    check(golden, GOLDEN / "flow" / f"{named(rule)}.txt", said)


@pytest.mark.parametrize("rule", PLAN, ids=named)
def test_each_rule_of_a_plan_says_what_its_golden_file_shows(rule: Rule, golden: Golden) -> None:
    said = {}
    for title, change in PLAN_CASES[named(rule)].items():
        plan = change()
        said[title] = (plan, plan_said(rule, plan))
        told = [str(fault) for fault in plan_faults(plan)]
        assert str(said[title][1][0]) in told, f"{title}: another rule comes first: {told}"
    check(golden, GOLDEN / "plan" / f"{named(rule)}.txt", said)


@pytest.mark.parametrize("rule", RUN_RULES, ids=named)
def test_each_thing_that_runs_do_not_do_is_refused_as_its_golden_file_shows(
    rule: Rule, golden: Golden
) -> None:
    said = {}
    for title, change in runnable.CASES[named(rule)].items():
        plan = change()
        said[title] = (plan, list(rule(plan)))
        assert str(said[title][1][0]) in [str(fault) for fault in unrunnable(plan)]
    check(golden, GOLDEN / "run" / f"{named(rule)}.txt", said)


@pytest.mark.parametrize(
    ("form", "rules"),
    [("flow", FLOW), ("plan", PLAN), ("run", RUN_RULES)],
    ids=["flow", "plan", "run"],
)
def test_each_rule_has_a_golden_file_and_each_file_a_rule(
    form: str, rules: tuple[Rule, ...]
) -> None:
    wanted = [named(rule) for rule in rules]
    assert len(set(wanted)) == len(wanted), "two rules of one name"
    assert sorted(path.stem for path in (GOLDEN / form).iterdir()) == sorted(wanted)


def test_each_case_is_of_a_rule() -> None:
    assert set(FLOW_CASES) == {named(rule) for rule in FLOW}
    assert set(PLAN_CASES) == {named(rule) for rule in PLAN}
    assert set(runnable.CASES) == {named(rule) for rule in RUN_RULES}


@pytest.mark.parametrize("rule", [*FLOW, *PLAN, *RUN_RULES], ids=named)
def test_a_rule_is_one_sentence_which_its_golden_file_repeats(rule: Rule) -> None:
    sentence = " ".join((rule.__doc__ or "").split())
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0, "one rule, one check"
    form = "plan" if rule in PLAN else "run" if rule in RUN_RULES else "flow"
    assert (GOLDEN / form / f"{named(rule)}.txt").read_text().startswith(f"{sentence}\n-----\n")
