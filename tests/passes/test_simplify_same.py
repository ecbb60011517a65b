"""Whatever chains of maps and filters there are, simplified ones make the same records."""

import zlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowgraph.ir.graph import FunctionRef, Graph, Stage, Stream
from flowgraph.ir.index import index
from flowgraph.ir.types import SAMPLE, Field, RecordType
from flowgraph.ir.verify.flow import RULES
from flowgraph.passes.pins import Pins
from flowgraph.passes.simplify import Simplify
from flowgraph.passes.state import State
from tests.passes.graphs import laptop
from tests.runtime.stages.rig import host, plan, run

FIELDS = ("a", "b", "c", "d")
SAMPLES = tuple(range(24))
HERE = "tests.passes.test_simplify_same"


def numbers(*, fields: list[str]) -> list[dict[str, int]]:
    return [{name: _digest(i, name) for name in fields} for i in SAMPLES]


def mixed(record: Any, *, fields: list[str], salt: int) -> dict[str, int]:
    """Fields that depend on all that the map is handed."""
    return {name: _digest(sorted(vars(record).items()), name, salt) for name in fields}


def lucky(record: Any, *, salt: int) -> bool:
    """Two of three records, by all that the filter is handed."""
    return _digest(sorted(vars(record).items()), salt) % 3 > 0


def _digest(*what: Any) -> int:
    return zlib.crc32(repr(what).encode())


def typed(fields: tuple[str, ...]) -> RecordType:
    return RecordType(fields=(SAMPLE, *(Field(name=name, dtype="int64") for name in fields)))


def ref(name: str, **params: Any) -> FunctionRef:
    return FunctionRef(module=HERE, qualname=name, params=params)


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """A source, then maps and filters on one another or on a stream before; sinks at all ends."""
    types: dict[str, tuple[str, ...]] = {"tasks": FIELDS[:3]}
    stages = [
        Stage(
            name="tasks",
            op="source",
            outputs=("tasks",),
            function=ref("numbers", fields=list(FIELDS[:3])),
        )
    ]
    for i in range(draw(st.integers(1, 7))):
        names = list(types)
        stream = names[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(names))
        stage, fields = draw(steps(f"s{i}", stream, types[stream]))
        stages.append(stage)
        types[stage.outputs[0]] = fields
    read = {name for stage in stages for name in stage.inputs}
    ends = [name for name in types if name not in read or not draw(st.integers(0, 4))]
    sinks = [
        Stage(name=f"{end}-end", op="sink", inputs=(end,), function=ref("lucky")) for end in ends
    ]
    return Graph(
        name="chains",
        stages=(*stages, *sinks),
        streams=tuple(
            Stream(name=stage.outputs[0], producer=stage.name, type=typed(types[stage.outputs[0]]))
            for stage in stages
        ),
    )


@st.composite
def steps(
    draw: st.DrawFn, name: str, stream: str, fields: tuple[str, ...]
) -> tuple[Stage, tuple[str, ...]]:
    """A map or a filter of a stream of these fields, and the fields of what it makes."""
    salt = draw(st.integers(0, 1))
    some = tuple(f for f in fields if draw(st.booleans()))
    if draw(st.booleans()):
        function, more = ref("lucky", salt=salt), {"reads": some}
        return Stage(
            name=name,
            op="filter",
            inputs=(stream,),
            outputs=(name,),
            function=function,
            attributes=more,
        ), fields
    made = tuple(f for f in FIELDS if f not in some and draw(st.booleans()))
    function = ref("mixed", fields=list(made), salt=salt)
    return Stage(
        name=name,
        op="map",
        inputs=(stream,),
        outputs=(name,),
        function=function,
        attributes={"keeps": some},
    ), (*some, *made)


def outcome(graph: Graph) -> tuple[dict[str, list[dict[str, Any]]], tuple[int, ...]]:
    """By sink, the records that it gets; and the samples that all filters keep."""
    working = [stage for stage in graph.stages if stage.op != "sink"]
    types = {stream.name: stream.type for stream in graph.streams}
    result = run(host(plan(*working, types=types), gated=False), SAMPLES)
    got = {s.name: result.outputs[s.inputs[0]][0].to_rows() for s in graph.by_op("sink")}
    return got, result.kept


@settings(max_examples=150, deadline=None)
@given(chains())
def test_every_sink_gets_the_same_records_in_the_same_order(graph: Graph) -> None:
    state = Simplify().apply(State(graph=graph, cluster=laptop(), pins=Pins()))
    at = index(state.graph)
    for stage in state.graph.stages:
        for rule in RULES[stage.op]:
            assert not list(rule(at, stage))
    assert outcome(state.graph) == outcome(graph)


def test_such_chains_are_simplified_often() -> None:
    seen: list[bool] = []

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(chains())
    def count(graph: Graph) -> None:
        state = Simplify().apply(State(graph=graph, cluster=laptop(), pins=Pins()))
        seen.append(bool(state.decisions))

    count()
    assert sum(seen) > len(seen) / 5
