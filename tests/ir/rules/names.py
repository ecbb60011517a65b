"""The shape of a graph: names, edges, order."""

from dataclasses import replace

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.location import Location
from tests.ir.rules.changes import Cases, added, stage, stream
from tests.passes.graphs import QUESTION, marl, ref, vlm


def doubled() -> Graph:
    graph = marl()
    return replace(
        graph, stages=(*graph.stages, replace(graph.stage("games"), at=graph.stages[0].at))
    )


def cycle() -> Graph:
    graph = vlm()
    loop = [
        Stage(
            name="a",
            op="map",
            inputs=("b",),
            outputs=("a",),
            function=ref("f"),
            at=Location("example.py", 10),
        ),
        Stage(
            name="b",
            op="map",
            inputs=("a",),
            outputs=("b",),
            function=ref("f"),
            at=Location("example.py", 11),
        ),
    ]
    streams = [Stream(name=s.name, producer=s.name, type=QUESTION) for s in loop]
    return replace(graph, stages=(*graph.stages, *loop), streams=(*graph.streams, *streams))


def unread() -> Graph:
    copy = Stage(name="copy", op="map", inputs=("samples",), outputs=("copy",), function=ref("f"))
    return added(
        vlm(),
        copy,
        Stream(name="copy", producer="copy", type=QUESTION, at=Location("example.py", 5)),
    )


CASES: Cases = {
    "names_are_legal": {
        "illegal name": lambda: replace(
            marl(), modules=(replace(marl().modules[0], name="a b"), *marl().modules)
        ),
    },
    "names_are_unique": {
        "stage named twice": doubled,
    },
    "outputs_are_declared": {
        "undeclared output": lambda: stage(
            marl(), "games", outputs=("games.solver", "games.verifier", "more")
        ),
    },
    "outputs_are_listed_once": {
        "output listed twice": lambda: stage(
            marl(), "games", outputs=("games.solver", "games.solver")
        ),
    },
    "streams_are_made_once": {
        "stream made twice": lambda: stage(vlm(), "encode", outputs=("images",)),
    },
    "kinds_of_streams_are_known": {
        "kind of stream": lambda: stream(vlm(), "images", kind="dat"),
    },
    "producers_exist": {
        "unknown producer": lambda: stream(vlm(), "images", producer="imges"),
    },
    "producers_make_their_streams": {
        "wrong producer": lambda: stream(vlm(), "images", producer="samples"),
    },
    "inputs_exist": {
        "unknown input": lambda: stage(vlm(), "encode", inputs=("image",)),
    },
    "there_is_no_cycle": {
        "cycle": cycle,
    },
    "streams_are_read": {
        "unconsumed stream": unread,
    },
}
