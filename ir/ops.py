"""The operations of the flow dialect: what each is, and which attributes it takes.

The verifier, the text form's checks and `docs/ir.md` all read this one table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REQUIRED = object()
"""Stands for a missing default: the attribute must be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """kind: `int`, `float`, `bool`, `str`, `names` (tuple of str), `map`, or `a|b|c` (one of)."""

    kind: str
    default: Any = REQUIRED
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """inputs, outputs: allowed counts as (least, most); most -1 is unbounded."""

    doc: str
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    function: bool = False
    host: bool = True  # runs in a stage worker; False: in the gang of its module


def _a(kind: str, doc: str, default: Any = REQUIRED) -> Attribute:
    return Attribute(kind=kind, doc=doc, default=default)


_BATCHED = _a("bool", "the function takes a whole batch of columns instead of one record", False)

OPS: Mapping[str, Op] = {
    "source": Op(
        doc="samples in a fixed order; a sample's id is its position",
        inputs=(0, 0),
        outputs=(1, 1),
        function=True,
        attributes={
            "at_end": _a("loop|drop|short", "what follows the last sample", "loop"),
            "shuffle": _a("bool", "a new order each epoch, from (seed, epoch)", False),
            "seed": _a("int", "seed of the order", 0),
            "expect": _a(
                "map", "entries of a sample in each ragged dim: a number or {mean, p95}", {}
            ),
        },
    ),
    "map": Op(
        doc="one record to one record",
        inputs=(1, 1),
        outputs=(1, 1),
        function=True,
        attributes={
            "batched": _BATCHED,
            "keeps": _a("names", "fields handed on as they were, past the function", ()),
            "credit": _a("bool", "inserted for an algorithm: sees one whole group", False),
            "group": _a("names", "key fields that make a group, for credit", ()),
            "size": _a("int", "rows a group, for credit; 0: all that share the key", 0),
        },
    ),
    "filter": Op(
        doc="keeps the records for which the function is true; membership refills from the source",
        inputs=(1, 1),
        outputs=(1, 1),
        function=True,
        attributes={
            "batched": _BATCHED,
            "reads": _a("names", "fields that the function is handed; empty: all", ()),
            "expect": _a("float", "share of the records that is kept, on average", 1.0),
        },
    ),
    "group": Op(
        doc="rows that share a key, or consecutive runs of `size` of them; ends with its sample",
        inputs=(1, 1),
        outputs=(1, 1),
        attributes={
            "by": _a("names", "key fields; the first is `sample`", ("sample",)),
            "size": _a("int", "rows a group, which divides those of each key; 0: all of them", 0),
        },
    ),
    "join": Op(
        doc="a sample with the fields of its items, regrouped by parent key; waits for all",
        inputs=(2, -1),
        outputs=(1, 1),
        attributes={
            "placeholder": _a("int", "token whose embeddings the joined features replace", -1),
        },
    ),
    "unnest": Op(
        doc="a sample into 0..n items along a ragged dim",
        inputs=(1, 1),
        outputs=(1, 1),
        attributes={
            "dim": _a("str", "name of the ragged dim"),
            "expect": _a("float", "items a sample, on average", 1.0),
        },
    ),
    "apply": Op(
        doc="a module's forward over records",
        inputs=(1, 1),
        outputs=(1, 1),
        host=False,
        attributes={
            "inputs": _a("names", "fields handed to the module, in order"),
            "output": _a("str", "name of the field with the module's output", "features"),
        },
    ),
    "episodes": Op(
        doc="multi-agent interaction: the user's async function, once a trajectory",
        inputs=(1, 1),
        outputs=(1, -1),
        function=True,
        attributes={
            "trajectories": _a("int", "trajectories a task"),
            "in_flight": _a("int", "tasks in flight", 4),
            "timeout_s": _a("float", "seconds a trajectory may take", 300.0),
            "on_timeout": _a("fail|drop", "what a late trajectory does to its task", "fail"),
        },
    ),
    "pack": Op(
        doc="several samples in one row, with segment boundaries",
        inputs=(1, 1),
        outputs=(1, 1),
        attributes={
            "tokens": _a("int", "length of a packed row, in tokens"),
            "over_long": _a("error|drop|truncate|split", "what an over-long sample does", "error"),
            "cost": _a("str", "cost model that packs are balanced by", "attention"),
        },
    ),
    "train": Op(
        doc="the loss of the first module's outputs, backward, and an optimizer update a part",
        inputs=(1, 1),
        outputs=(0, 0),
        function=True,
        host=False,
        attributes={
            "batch": _a("int", "source samples a step"),
            "micro_batch": _a("int", "tokens a trainer takes at once", 4096),
            "updates": _a("int", "optimizer updates a step", 1),
            "optimizer": _a("map", "name and settings: {name: adamw, lr: 1e-3, ...}"),
            "schedule": _a("map", "learning rate over the run: {name: constant}", {}),
            "clip": _a("float", "largest gradient norm; 0 is no clipping", 1.0),
            "needs": _a("names", "fields that the loss reads beside the tokens", ()),
            "staleness": _a(
                "int", "updates that the weights which made a sample may lag behind", 0
            ),
            "reference": _a("str", "module whose log-probs the loss reads, or empty", ""),
        },
    ),
    "evaluate": Op(
        doc="figures of the present weights, at step boundaries",
        inputs=(0, 1),
        outputs=(0, 0),
        host=False,
        attributes={
            "of": _a("str", "the stage evaluated: a train stage or an episodes stage"),
            "every": _a("int", "steps between evaluations; 0 is the first and the last only", 0),
            "samples": _a("int", "samples an evaluation"),
            "overrides": _a("map", "parameters of the episodes' function replaced", {}),
            "source": _a("map", "source stage's function reference and parameters, or empty", {}),
            "at_start": _a("bool", "evaluate before the first step too", True),
        },
    ),
    "sink": Op(
        doc="hands records to the user's function",
        inputs=(1, 1),
        outputs=(0, 0),
        function=True,
        attributes={"batched": _BATCHED},
    ),
}
