"""The explanation as text: whole for both examples, and the picture of any graph."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.inspect.facts import facts_of
from flowgraph.inspect.text import MOST_ROWS, told
from flowgraph.inspect.text_lines import WIDTH
from flowgraph.inspect.text_picture import MOST_LINES, text_picture
from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.plan import Plan
from flowgraph.ir.types import Field, RecordType
from flowgraph.passes import compile_graph
from tests.conftest import Golden
from tests.inspect.plans import PLANS, example
from tests.passes.graphs import laptop, marl

FOLDER = Path(__file__).parent / "golden"
SHOWN = [
    (name, cluster)
    for name in ("marl_arithmetic", "vlm_digits")
    for cluster in ("laptop", "node-8-gpu")
]


@pytest.mark.parametrize(("name", "cluster"), SHOWN)
def test_an_example_is_explained_as_its_file_shows(name: str, cluster: str, golden: Golden) -> None:
    text = told(facts_of(example(name, cluster)))
    golden(FOLDER / f"{name}-{cluster}.txt", text)


@pytest.mark.parametrize("make", PLANS.values(), ids=PLANS)
def test_the_text_names_every_group_and_keeps_to_its_width(make: Callable[[], Plan]) -> None:
    plan = make()
    text = told(facts_of(plan))
    for group in plan.groups:
        assert f"  {group.name} " in text
    for stage in plan.graph.stages:
        assert re.search(rf"(^|[ ▶│]){re.escape(stage.name)} ", text, re.MULTILINE), stage.name
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []


def test_pins_are_told_and_take_the_place_of_reasons() -> None:
    plan = PLANS["pinned"]()
    text = told(facts_of(plan))
    assert "solver.engines = 2: the compiler was told so" in text
    assert "why          pinned: the compiler was told so" in text
    assert "Training begins when all samples of a step are complete" in text


def test_a_second_process_on_shared_cores_is_not_weighed_but_can_be_asked_for() -> None:
    text = told(facts_of(compile_graph(marl(), laptop())))
    assert "--pin verifier.engines=2 plans with two" in text


def test_trainers_that_share_devices_say_whose_turn_it_is() -> None:
    text = told(facts_of(PLANS["agents in turn on few devices"]()))
    assert re.search(r"turn +number 2 in turn on the devices of \w+\.gang", text)


RECORD = RecordType(fields=(Field(name="sample", dtype="int64"),), key=("sample",))


def chain(names: list[str], parents: list[list[str]]) -> Graph:
    """A graph of joins and sources, as far as a picture is concerned."""
    stages = tuple(
        Stage(
            name=name,
            op="source" if not above else "join",
            inputs=tuple(above),
            outputs=(name,),
        )
        for name, above in zip(names, parents, strict=True)
    )
    streams = tuple(Stream(name=name, producer=name, type=RECORD) for name in names)
    return Graph(name="drawn", stages=stages, streams=streams)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    names = [f"n{i}" for i in range(draw(st.integers(1, 12)))]
    parents = [
        draw(st.lists(st.sampled_from(names[:i]), unique=True, max_size=3)) if i else []
        for i in range(len(names))
    ]
    return chain(names, parents)


@given(graphs())
@settings(max_examples=100)
def test_every_stage_is_drawn_once_and_below_one_that_it_reads(graph: Graph) -> None:
    lines = text_picture(graph).splitlines()
    drawn = [match.group(1) for line in lines if (match := re.match(r"[ │├└▶]*(n\d+) ", line))]
    assert sorted(drawn) == sorted(stage.name for stage in graph.stages)
    for stage in graph.stages:
        if stage.inputs:
            assert min(drawn.index(name) for name in stage.inputs) < drawn.index(stage.name)


def test_branches_close_where_the_last_reader_hangs() -> None:
    graph = chain(["a", "b", "c", "d"], [[], ["a"], ["b"], ["a", "c"]])
    lefts = [re.split(r" +(?:source|join) ", line)[0] for line in text_picture(graph).splitlines()]
    assert lefts == ["a", "├▶ b", "│  c", "└▶ d"]


def test_a_picture_of_thousands_of_stages_is_cut_and_says_so() -> None:
    names = [f"n{i}" for i in range(3000)]
    graph = chain(names, [[], *([name] for name in names[:-1])])
    lines = text_picture(graph).splitlines()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == f"... and {3000 - MOST_LINES} stages more"


def test_tables_of_thousands_are_cut_and_say_so() -> None:
    plan = compile_graph(marl(), laptop())
    many = tuple(replace(plan.channels[0], stream=f"s{i}") for i in range(1000))
    text = told(facts_of(replace(plan, channels=many)))
    assert f"... and {1000 - MOST_ROWS} more; --json has them all" in text
    assert len(text.splitlines()) < 200
