"""What a stage's function has to do with each field: what a map keeps, what a filter reads."""

from collections.abc import Sequence
from typing import Any

from flowgraph.dsl.location import refuse
from flowgraph.dsl.records import Record, fields_read
from flowgraph.dsl.suggest import choices
from flowgraph.ir.types import RecordType


def kept_fields(
    keeps: Sequence[str], made: RecordType, stream: str, read: RecordType, *, role: str
) -> RecordType:
    """The type of a map's records: the key, what it keeps, then what its function makes.

    Raises GraphError at the user's line for a field that is not there, or is made anew.
    """
    names = _listed(keeps, "keeps", stream, read, role)
    for name in names:
        if made.field(name) is not None:
            raise refuse(
                f"{role}: keeps '{name}' as it was, but its function makes a field '{name}' too",
                hint=f"leave '{name}' out of what the function returns, or out of keeps",
            )
    keys = tuple(field for field in made.fields if field.name in made.key)
    own = tuple(field for field in made.fields if field.name not in made.key)
    kept = tuple(field for field in read.fields if field.name in names)
    return RecordType(fields=(*keys, *kept, *own), key=made.key)


def read_fields(
    reads: Sequence[str], annotation: Any, stream: str, type: RecordType, *, role: str
) -> tuple[str, ...]:
    """The fields that a filter's function is handed, the key aside; none where nobody tells.

    Without `reads` they are those of the class that the function's first parameter is annotated
    with. Raises GraphError at the user's line for a field that is not there, and for one that the
    class must have and `reads` leaves out.
    """
    names = _listed(reads, "reads", stream, type, role)
    if not names:
        return fields_read(annotation, type) or ()
    record = Record.of(annotation)
    required = [d.field.name for d in record.fields if not d.optional] if record else []
    missing = [name for name in required if name not in (*names, *type.key)]
    if record and missing:
        without = ", ".join(f"'{name}'" for name in missing)
        raise refuse(
            f"{role}: reads={list(names)!r}, but {record.name} cannot be made without {without}",
            hint=f"reads={[*names, *missing]!r}, or a class of fewer fields at the function",
        )
    return names


def _listed(
    names: Sequence[str], word: str, stream: str, type: RecordType, role: str
) -> tuple[str, ...]:
    """Names of fields of the stream, each once and without the key, which always is there."""
    if isinstance(names, str):
        raise refuse(f"{role}: {word} lists fields, got {names!r}", hint=f"{word}=[{names!r}]")
    for name in names:
        if type.field(str(name)) is None:
            raise refuse(
                f"{role}: {word} '{name}', but stream '{stream}' has no such field",
                hint=choices(str(name), type.names, what="field"),
            )
    return tuple(dict.fromkeys(name for name in names if name not in type.key))
