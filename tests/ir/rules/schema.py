"""What every stage obeys."""

from tests.ir.rules.changes import Cases, stage, without
from tests.passes.graphs import marl, vlm

CASES: Cases = {
    "operation_is_known": {
        "operation": lambda: stage(vlm(), "images", op="unest"),
    },
    "counts_are_legal": {
        "inputs": lambda: stage(vlm(), "join", inputs=("samples",)),
        "outputs": lambda: stage(vlm(), "train-lm", outputs=("packs",)),
    },
    "function_is_there": {
        "function": lambda: stage(vlm(), "samples", function=None),
    },
    "devices_are_counted": {
        "devices": lambda: stage(vlm(), "train-lm", devices=-1),
    },
    "attributes_are_known": {
        "unknown attribute": lambda: stage(vlm(), "pack", attributes={"token": 1}),
    },
    "attributes_are_of_their_kind": {
        "attribute's kind": lambda: stage(vlm(), "pack", attributes={"tokens": "many"}),
        "bool is no int": lambda: stage(vlm(), "pack", attributes={"tokens": True}),
        "attribute's choice": lambda: stage(vlm(), "pack", attributes={"over_long": "cut"}),
        "attribute's data": lambda: stage(vlm(), "train-lm", attributes={"schedule": {"f": print}}),
    },
    "attributes_are_given": {
        "missing attribute": lambda: without(vlm(), "pack", "tokens"),
    },
    "references_exist": {
        "unknown module": lambda: stage(vlm(), "encode", modules=("vot",)),
        "unknown agent": lambda: stage(marl(), "games", agents=("solver", "verifer")),
    },
}
