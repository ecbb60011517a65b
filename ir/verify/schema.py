"""Rules that every stage obeys: what `ops.OPS` says of its operation."""

from collections.abc import Mapping
from typing import Any

from flowgraph.ir.data import PlainError, plain_data
from flowgraph.ir.graph import Stage
from flowgraph.ir.index import Index
from flowgraph.ir.ops import OPS, REQUIRED
from flowgraph.ir.verify.faults import Faults, StageRule, fault, nearest


def operation_is_known(at: Index, stage: Stage) -> Faults:
    """The operation is one of those above."""
    if stage.op not in OPS:
        yield fault(stage, "an operation", repr(stage.op), nearest(stage.op, OPS), term="op")


def counts_are_legal(at: Index, stage: Stage) -> Faults:
    """Inputs and outputs are as many as the operation takes."""
    op = OPS[stage.op]
    for what, names, (least, most) in (
        ("inputs", stage.inputs, op.inputs),
        ("outputs", stage.outputs, op.outputs),
    ):
        count = len(names)
        if count < least or 0 <= most < count:
            allowed = f"{least}" if most == least else f"{least} to {most}"
            allowed = f"at least {least}" if most < 0 else allowed
            hint = (
                f"{least - count} {what} more" if count < least else f"{count - most} {what} fewer"
            )
            yield fault(stage, f"{allowed} {what} of a {stage.op}", str(count), hint, term=what)


def function_is_there(at: Index, stage: Stage) -> Faults:
    """An operation that runs the user's function has one."""
    if OPS[stage.op].function and stage.function is None:
        yield fault(stage, f"a function, which a {stage.op} needs", "none", "function=...")


def devices_are_counted(at: Index, stage: Stage) -> Faults:
    """A stage wants no device, or some."""
    if stage.devices < 0:
        got, hint = str(stage.devices), "devices=0, which leaves it to the compiler"
        yield fault(stage, "devices >= 0", got, hint, term="devices")


def attributes_are_known(at: Index, stage: Stage) -> Faults:
    """Attributes are those of the operation."""
    known = OPS[stage.op].attributes
    for name in stage.attributes:
        if name not in known:
            hint = nearest(name, known)
            yield fault(stage, f"attributes of a {stage.op}", repr(name), hint, term=name)


def attributes_are_of_their_kind(at: Index, stage: Stage) -> Faults:
    """An attribute's value is of the attribute's kind."""
    for name, value in stage.attributes.items():
        attribute = OPS[stage.op].attributes.get(name)
        if attribute is not None and not _is_of(attribute.kind, value):
            hint = _example(attribute.kind, value)
            kind = _said(attribute.kind)
            yield fault(stage, f"{name} of kind {kind}", repr(value), hint, term=name)


def attributes_are_given(at: Index, stage: Stage) -> Faults:
    """An attribute without a default is given."""
    for name, attribute in OPS[stage.op].attributes.items():
        if attribute.default is REQUIRED and name not in stage.attributes:
            hint = f"{name}={_example(attribute.kind, None)}"
            yield fault(stage, f"attribute {name!r} ({attribute.doc})", "none", hint)


_EXAMPLES = {"int": "1", "float": "1.0", "bool": "true", "str": '"name"', "names": '("name")'}


def _example(kind: str, value: Any) -> str:
    """A value of the kind: what was probably meant, if the kind is a choice."""
    if "|" in kind:
        return nearest(str(value), kind.split("|")) or ""
    return _EXAMPLES.get(kind, "{name: 1}")


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
    function_is_there,
    devices_are_counted,
    attributes_are_known,
    attributes_are_of_their_kind,
    attributes_are_given,
    references_exist,
)
"""In this order: a rule may rest on those before it."""
