"""Rules that every stage obeys: what `ops.OPS` says of its operation."""

from collections.abc import Mapping
from typing import Any

from flowgraph.ir.data import PlainError, plain_data
from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index
from flowgraph.ir.ops import OPS, REQUIRED, Op
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest


def operation_is_known(at: Index, stage: Stage) -> Faults:
    """The operation is one of those above."""
    if stage.op not in OPS:
        yield fault(stage, "an operation", repr(stage.op), nearest(stage.op, OPS), term="op")


def counts_are_legal(at: Index, stage: Stage) -> Faults:
    """Inputs and outputs are as many as the operation takes, and a function is there if needed."""
    op = OPS[stage.op]
    for what, count, (least, most) in (
        ("inputs", len(stage.inputs), op.inputs),
        ("outputs", len(stage.outputs), op.outputs),
    ):
        if count < least or 0 <= most < count:
            allowed = f"{least}" if most == least else f"{least} to {most}"
            allowed = f"at least {least}" if most < 0 else allowed
            yield fault(stage, f"{allowed} {what} of a {stage.op}", str(count), term=what)
    if op.function and stage.function is None:
        yield fault(stage, f"a function, which a {stage.op} needs", "none")
    if stage.devices < 0:
        yield fault(stage, "devices >= 0", str(stage.devices), term="devices")


def attributes_fit(at: Index, stage: Stage) -> Faults:
    """Attributes are those of the operation, and of their kind; what has no default is given."""
    op = OPS[stage.op]
    for name, value in stage.attributes.items():
        if name not in op.attributes:
            hint = nearest(name, op.attributes)
            yield fault(stage, f"attributes of a {stage.op}", repr(name), hint, term=name)
            continue
        kind = op.attributes[name].kind
        if not _is_of(kind, value):
            yield fault(stage, f"{name} of kind {_said(kind)}", repr(value), term=name)
    yield from _missing(stage, op)


def _missing(stage: Stage, op: Op) -> Faults:
    for name, attribute in op.attributes.items():
        if attribute.default is REQUIRED and name not in stage.attributes:
            yield fault(stage, f"attribute {name!r} ({attribute.doc})", "none")


def references_exist(at: Index, stage: Stage) -> Faults:
    """Modules and agents that a stage names are declared."""
    for what, names, known in (
        ("modules", stage.modules, at.modules),
        ("agents", stage.agents, at.agents),
    ):
        for name in names:
            if name not in known:
                hint = nearest(name, known)
                yield fault(stage, f"declared {what}", repr(name), hint, term=name)


def _is_of(kind: str, value: Any) -> bool:
    if "|" in kind:
        return isinstance(value, str) and value in kind.split("|")
    if kind == "names":
        return isinstance(value, tuple) and all(isinstance(name, str) for name in value)
    if kind == "map":
        return isinstance(value, Mapping) and _is_plain(value)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is {"int": int, "bool": bool, "str": str}[kind]


def _is_plain(value: Any) -> bool:
    try:
        plain_data(value)
    except PlainError:
        return False
    return True


def _said(kind: str) -> str:
    return " or ".join(kind.split("|")) if "|" in kind else kind


SCHEMA_RULES: tuple[StageRule, ...] = (
    operation_is_known,
    counts_are_legal,
    attributes_fit,
    references_exist,
)
