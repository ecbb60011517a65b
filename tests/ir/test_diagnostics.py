"""Where a fault is drawn in the printed graph."""

from dataclasses import replace

from flowgraph.ir.diagnostics import render
from flowgraph.ir.errors import GraphError
from flowgraph.ir.verify import flow_faults
from tests.passes.graphs import vlm


def test_the_wrong_term_is_underlined_in_the_printed_graph() -> None:
    graph = vlm()
    pack = replace(graph.stage("pack"), attributes={"tokens": 0})
    graph = replace(graph, stages=tuple(pack if s.name == "pack" else s for s in graph.stages))
    fault = next(flow_faults(graph))
    lines = render(fault, graph).splitlines()
    assert lines[:2] == ["example.py:6:", "  stage 'pack': expects tokens >= 1, got 0"]
    under = next(i for i, line in enumerate(lines) if "^" in line)
    start = lines[under].index("^")
    assert lines[under - 1][start:].startswith("tokens: 0")
    assert lines[under].count("^") == len("tokens")


def test_without_a_term_the_name_is_underlined() -> None:
    fault = GraphError("wrong", node='stage "pack"')
    lines = render(fault, vlm()).splitlines()
    under = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[under].count("^") == len('stage "pack"')
    assert lines[under - 1].endswith("attributes={tokens: 256}") or "pack" in lines[under - 1]


def test_a_term_that_is_a_part_of_the_name_is_not_drawn_there() -> None:
    fault = GraphError("wrong", node='stage "pack"', term="pack")
    lines = render(fault, vlm()).splitlines()
    under = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[under - 1][lines[under].index("^") :].startswith("pack")


def test_a_fault_of_no_place_is_told_in_words_only() -> None:
    assert render(GraphError("wrong", hint="mend it"), vlm()) == "wrong\n  try: mend it"
    assert render(GraphError("wrong", node='stage "gone"'), vlm()) == "wrong"
