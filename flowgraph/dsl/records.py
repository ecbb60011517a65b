"""Record types from the user's classes: what a dataclass says about a stream's fields."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flowgraph.dsl.annotations import MISSING, class_hints, spelled
from flowgraph.dsl.fields import Declared, declare
from flowgraph.dsl.location import refuse
from flowgraph.dsl.suggest import choices
from flowgraph.ir.types import SAMPLE, Field, RecordType

_UNTYPED = (MISSING, Any, object, dict, Mapping, SimpleNamespace)
"""Annotations that say nothing about the fields."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record class as the user wrote it: its fields, and where rows may lack one."""

    name: str
    fields: tuple[Declared, ...]

    @classmethod
    def of(cls, annotation: Any) -> "Record | None":
        """Read a dataclass, TypedDict or NamedTuple; None for anything else."""
        optional = _optional_fields(annotation)
        if optional is None:
            return None
        fields = tuple(
            declare(name, hint, owner=annotation.__name__, optional=name in optional)
            for name, hint in class_hints(annotation).items()
            if typing.get_origin(hint) is not typing.ClassVar
        )
        return cls(annotation.__name__, fields)


def source_type(element: Any, *, role: str, hint: str) -> RecordType:
    """The type of a source's stream, whose records are `element`: its fields, keyed by sample."""
    return output_type(element, ("sample",), (SAMPLE,), role=role, hint=hint)


def output_type(
    element: Any, key: tuple[str, ...], key_fields: tuple[Field, ...], *, role: str, hint: str
) -> RecordType:
    """The type of a stream whose records the user's function makes; the key is carried along.

    A field that is named like a key field stands for it and must be an int.
    """
    record = Record.of(element)
    if record is None:
        got = "nothing" if element is MISSING else spelled(element)
        raise refuse(
            f"{role}: expects records as a dataclass, TypedDict or NamedTuple, got {got}", hint=hint
        )
    for declared in record.fields:
        if declared.field.name in key and (declared.field.dtype, declared.field.dims) != (
            "int64",
            (),
        ):
            raise refuse(
                f"{role}: field '{declared.field.name}' of {record.name} is the record's key "
                f"and must be an int, got {declared.field}"
            )
    own = tuple(d.field for d in record.fields if d.field.name not in key)
    return RecordType(fields=(*key_fields, *own), key=key)


def fields_read(annotation: Any, type: RecordType) -> tuple[str, ...] | None:
    """Fields of the stream that the annotated class is handed, the key left out; None where the
    annotation does not tell."""
    record = Record.of(annotation)
    if record is None:
        return None
    names = {declared.field.name for declared in record.fields}
    return tuple(n for n in type.names if n in names and n not in type.key)


def check_input(annotation: Any, stream: str, type: RecordType, *, role: str) -> None:
    """Check that a stream's records can be handed over as the annotated class.

    The class may leave fields of the stream out. Raises GraphError at the user's line.
    """
    if annotation in _UNTYPED or typing.get_origin(annotation) in (dict, Mapping):
        return
    record = Record.of(annotation)
    if record is None:
        raise refuse(
            f"{role}: the first parameter gets a record, but is annotated {spelled(annotation)}",
            hint="annotate it with a dataclass, TypedDict or NamedTuple of the fields it reads",
        )
    for declared in record.fields:
        _check_field(declared, record.name, stream, type, role)


def _check_field(declared: Declared, owner: str, stream: str, type: RecordType, role: str) -> None:
    wanted = declared.field
    found = type.field(wanted.name)
    if found is None:
        if declared.optional:
            return
        raise refuse(
            f"{role}: expects field '{wanted.name}' (of {owner}), "
            f"stream '{stream}' has no such field",
            hint=choices(wanted.name, type.names, what="field"),
        )
    if not declared.accepts(found):
        raise refuse(
            f"{role}: expects '{wanted}' (of {owner}), stream '{stream}' has '{found}'",
            hint=f"change the type of '{wanted.name}' in {owner}, or map the stream to it",
        )


def _optional_fields(annotation: Any) -> set[str] | None:
    """Fields that rows may lack, if this is a record class."""
    if not isinstance(annotation, type):
        return None
    if typing.is_typeddict(annotation):
        return set(getattr(annotation, "__optional_keys__", ()))
    if dataclasses.is_dataclass(annotation):
        return {
            field.name
            for field in dataclasses.fields(annotation)
            if field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        }
    if issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults"):
        return set(annotation._field_defaults)
    return None
