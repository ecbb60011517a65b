"""Joins, and what lies between an encoder and its loss."""

from dataclasses import replace

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.types import ITEM, Field, Ragged
from tests.ir.rules.changes import INT, Cases, added, lacking, stage, stream, typed
from tests.passes.graphs import marl, ref, vlm


def through_a_map() -> Graph:
    """The features of a trained encoder pass through the user's function."""
    between = Stage(
        name="scale", op="map", inputs=("features",), outputs=("scaled",), function=ref("f")
    )
    graph = stage(vlm(), "join", inputs=("samples", "scaled"))
    made = Stream(name="scaled", producer="scale", type=graph.stream("features").type)
    stages = (*graph.stages[:3], between, *graph.stages[3:])
    return replace(graph, stages=stages, streams=(*graph.streams, made))


def shown_beside() -> Graph:
    """What trains on features is read by a sink too."""
    show = Stage(name="show", op="sink", inputs=("joined",), function=ref("f"))
    return added(vlm(), show)


def joined_twice() -> Graph:
    """Two streams of items are joined, one behind the other."""
    graph = vlm()
    encode, join = graph.stage("encode"), graph.stage("join")
    output = Field(name="others", dtype="float32", dims=(Ragged("patches"), 64))
    features, joined = graph.stream("features").type, graph.stream("joined").type
    key = tuple(field for field in features.fields if field.name in features.key)
    nested = replace(output, dims=(Ragged("images"), *output.dims))
    both = replace(joined, fields=(*joined.fields, nested))
    graph = stage(graph, "pack", inputs=("both",))
    graph = stream(graph, "packs", type=both)
    again = replace(
        encode,
        name="again",
        outputs=("others",),
        attributes={**encode.attributes, "output": "others"},
    )
    graph = added(
        graph,
        again,
        Stream(name="others", producer="again", type=replace(features, fields=(*key, output))),
    )
    second = replace(join, name="second", inputs=("joined", "others"), outputs=("both",))
    return added(graph, second, Stream(name="both", producer="second", type=both))


CASES: Cases = {
    "join_has_its_keys": {
        "join's keys": lambda: typed(vlm(), "features", key=("item",)),
    },
    "joined_fields_are_of_one_input": {
        "join's fields": lambda: typed(vlm(), "features", replace(INT, name="tokens")),
    },
    "join_makes_all_fields": {
        "join's output": lambda: lacking(vlm(), "joined", "features"),
    },
    "features_stay_in_trainers": {
        "features outside trainers": shown_beside,
    },
    "encoders_are_applied": {
        "encoder not applied": lambda: stage(
            marl(), "train-solver", modules=("solver", "verifier")
        ),
    },
    "gradients_can_return": {
        "gradient's way": through_a_map,
    },
    "joined_items_replace_tokens": {
        "items without a place": lambda: stage(vlm(), "join", attributes={"placeholder": -1}),
    },
    "items_are_of_one_stream": {
        "two streams of items": joined_twice,
    },
    "join_keeps_the_first_key": {
        "key of a join": lambda: typed(vlm(), "joined", ITEM, key=("sample", "item")),
    },
}
