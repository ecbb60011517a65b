"""Record types, whoever makes them."""

from dataclasses import replace

from flowgraph.ir.types import Field, Ragged, RecordType
from tests.ir.rules.changes import INT, Cases, stream, typed
from tests.passes.graphs import QUESTION, vlm

CASES: Cases = {
    "fields_are_named_once": {
        "field twice": lambda: stream(
            vlm(), "samples", type=RecordType(fields=(*QUESTION.fields, INT, INT))
        ),
    },
    "dtypes_are_known": {
        "dtype": lambda: typed(
            vlm(),
            "samples",
            Field(name="x", dtype="int65"),  # type: ignore[arg-type]
        ),
    },
    "ragged_dims_lead": {
        "ragged behind fixed": lambda: typed(vlm(), "samples", replace(INT, dims=(3, Ragged("n")))),
    },
    "sizes_are_positive": {
        "size": lambda: typed(vlm(), "samples", replace(INT, dims=(0,))),
    },
    "keys_are_fields": {
        "key": lambda: typed(vlm(), "samples", key=("sample", "item")),
    },
}
