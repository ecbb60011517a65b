"""The text form: how it looks, and what its parser says of a mistake."""

import pytest

from flowgraph.ir.graph import Graph
from flowgraph.ir.lexer import ParseError
from flowgraph.ir.text import parse, parse_graph, parse_plan, print_text
from tests.passes.graphs import vlm

SMALL = """\
# A comment, which printing leaves out.
graph "small" steps=3 settings={lr: 1e-3, name: "a\\nb", none: null, sizes: (1, 2,), yes: true} {
  stage "tasks" op="source" outputs=("tasks") at @"small.py":4
  stream "tasks" producer="tasks" at @"small.py":4
      type=<sample: int64, words: str[words*], grid: float32[n, 16], by: bool by sample>
}
"""
MISTAKES = {
    "no text": ("", 1, 1, "expects one of graph, plan, cluster, got 'the end'"),
    "keyword": ("grph", 1, 1, "expects one of graph, plan, cluster, got 'grph'"),
    "character": ('graph "a" $', 1, 11, "no token starts with '$'"),
    "open quote": ('graph "a', 1, 7, "no token starts with '\"'"),
    "field": ('graph "a"\n  stps=3', 2, 8, "Graph has no 'stps'; nearest: 'steps'"),
    "twice": ('graph "a" steps=1 steps=2', 1, 19, "field 'steps' is given twice"),
    "value": ('graph "a" steps=', 1, 17, "expects a value, got 'the end'"),
    "kind of value": ('graph "a" {\n  stage "b" op=3\n}', 2, 16, "expects str, got 3"),
    "truth is no number": ('graph "a" steps=true', 1, 17, "expects int, got True"),
    "missing field": ('graph "a" {\n  stage "b"\n}', 2, 3, "Stage lacks 'op'"),
    "tuple": ('graph "a" settings={b: (1 2)}', 1, 27, "expects a comma or ), got '2'"),
    "map": ('graph "a" settings={b 1}', 1, 23, "expects :, got '1'"),
    "key twice": ('graph "a" settings={b: 1, b: 2}', 1, 27, "key 'b' is given twice"),
    "inside": ('graph "a" { task "b" }', 1, 13, "graph has module, agent, stage, stream inside"),
    "block as field": (
        'graph "a" stages=()',
        1,
        11,
        "'stages' is written as `stage ...` in braces",
    ),
    "open brace": ('graph "a" {', 1, 12, "expects one of module, agent, stage, stream, or }"),
    "more": ('graph "a" }', 1, 11, "expects the end of the text, got '}'"),
    "dtype": (
        'graph "a" { stream "b" producer="c" type=<d: int65> }',
        1,
        46,
        "expects one of bool, uint8",
    ),
    "line number": ('graph "a" { stage "b" op="c" at @"f":1.5 }', 1, 34, "expects a line number"),
    "escape": ('graph "a\\q"', 1, 7, "not a legal text"),
    "long number": ('graph "a" steps=' + "1" * 5000, 1, 17, "a number of more than 400 digits"),
    "deep": ('graph "a" settings={b: ' + "(" * 60 + ")" * 60 + "}", 1, 56, "nested more than 32"),
    "two schedules": (
        "plan { schedule batch=1 chunk=1 schedule batch=1 chunk=1 }",
        1,
        33,
        "plan has one schedule, here is a second",
    ),
}


def test_a_text_written_by_hand_is_read_and_printed_in_the_standard_form() -> None:
    graph = parse_graph(SMALL)
    assert graph.settings == {
        "lr": 1e-3,
        "name": "a\nb",
        "none": None,
        "sizes": (1, 2),
        "yes": True,
    }
    assert str(graph.stream("tasks").type) == (
        "(sample: int64, words: str[words*], grid: float32[n, 16], by: bool) by (sample)"
    )
    assert str(graph.stage("tasks").at) == "small.py:4"
    assert print_text(graph).splitlines() == [
        'graph "small" steps=3 '
        'settings={lr: 0.001, name: "a\\nb", none: null, sizes: (1, 2), yes: true} {',
        '  stage "tasks" op="source" outputs=("tasks") at @"small.py":4',
        '  stream "tasks" producer="tasks"',
        "      type=<sample: int64, words: str[words*], grid: float32[n, 16], by: bool> "
        'at @"small.py":4',
        "}",
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_place(name: str) -> None:
    text, line, column, message = MISTAKES[name]
    with pytest.raises(ParseError) as caught:
        parse(text, "small.fg")
    said = caught.value.what.splitlines()
    assert caught.value.at is not None
    assert (str(caught.value.at), said[0].partition(":")[0]) == (
        f"small.fg:{line}",
        f"column {column}",
    )
    assert message in said[0]
    assert said[2].endswith("^")


def test_a_graph_is_no_plan() -> None:
    with pytest.raises(ParseError, match="expects a plan, got a graph"):
        parse_plan(print_text(vlm()))


def test_cut_and_changed_texts_are_refused_by_name_or_still_read() -> None:
    text = print_text(vlm())
    for cut in range(0, len(text) - 2, 7):
        with pytest.raises(ParseError):
            parse(text[:cut])
    for place in range(0, len(text), 5):
        changed = text[:place] + "}" + text[place + 1 :]
        try:
            assert isinstance(parse(changed), Graph)
        except ParseError:
            continue
