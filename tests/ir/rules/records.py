"""Which fields a stage reads, and what it makes of them."""

from dataclasses import replace

from flowgraph.ir.graph import Graph, Stage, Stream
from flowgraph.ir.location import Location
from flowgraph.ir.types import AGENT_ROW, Field, Ragged, RecordType
from tests.ir.rules.changes import INT, Cases, added, lacking, stage, stream, typed
from tests.passes.graphs import IMAGE, QUESTION, TASK, filtered, marl, ref, vlm


def late_filter() -> Graph:
    """Samples are filtered by what a model says of them."""
    graph = vlm()
    apply = replace(graph.stage("encode"), name="score", inputs=("samples",), outputs=("scored",))
    scored = RecordType(fields=(*QUESTION.fields, Field(name="features", dtype="float32")))
    keep = Stage(
        name="keep",
        op="filter",
        inputs=("scored",),
        outputs=("kept",),
        function=ref("f"),
        at=Location("example.py", 8),
    )
    show = Stage(name="show", op="sink", inputs=("kept",), function=ref("f"))
    graph = added(graph, apply, Stream(name="scored", producer="score", type=scored))
    graph = added(graph, keep, Stream(name="kept", producer="keep", type=scored))
    return added(graph, show)


CASES: Cases = {
    "key_is_kept": {
        "map's key": lambda: typed(marl(), "train-solver.credit", key=("sample",)),
    },
    "type_is_kept": {
        "group's type": lambda: typed(marl(), "solver.groups", INT),
        "filter's type": lambda: typed(filtered(), "kept", INT),
        "pack's type": lambda: lacking(vlm(), "packs", "rows"),
    },
    "filter_decides_early": {
        "filter behind a model": late_filter,
    },
    "unnest_has_its_dim": {
        "unnest's dim": lambda: stage(vlm(), "images", attributes={"dim": "patches"}),
    },
    "samples_are_read": {
        "unnest of items": lambda: stream(
            vlm(), "samples", type=replace(IMAGE, fields=(*IMAGE.fields, *TASK.fields[1:]))
        ),
        "play with rows": lambda: stream(marl(), "tasks", type=AGENT_ROW),
    },
    "items_have_keys": {
        "unnest's key": lambda: typed(vlm(), "images", key=("sample",)),
    },
    "apply_has_a_module": {
        "apply's module": lambda: stage(vlm(), "encode", modules=("vit", "lm")),
    },
    "apply_has_its_fields": {
        "apply's inputs": lambda: stage(vlm(), "encode", attributes={"inputs": ("patchs",)}),
    },
    "apply_makes_its_output": {
        "apply's output": lambda: stage(vlm(), "encode", attributes={"output": "feature"}),
    },
    "lengths_are_of_its_dims": {
        "no length": lambda: stage(
            vlm(), "samples", attributes={"expect": {"tokens": {"mean": 0}}}
        ),
        "length of nothing": lambda: stage(vlm(), "samples", attributes={"expect": {"token": 20}}),
    },
    "kept_fields_are_the_same": {
        "kept from nowhere": lambda: stage(filtered(), "clean", attributes={"keeps": ("token",)}),
        "kept and changed": lambda: typed(
            stage(filtered(), "clean", attributes={"keeps": ("tokens",)}),
            "clean",
            replace(INT, name="tokens", dims=(Ragged("words"),)),
        ),
    },
    "read_fields_are_there": {
        "field that decides": lambda: stage(filtered(), "keep", attributes={"reads": ("token",)}),
    },
}
