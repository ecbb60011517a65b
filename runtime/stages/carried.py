"""Records whose function made some fields, while others were carried past it: the key, and what a
map keeps."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from flowgraph.ir.graph import Stage
from flowgraph.ir.types import SAMPLE, Field, RecordType
from flowgraph.runtime.batch import Column
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.failures import RecordMismatch
from flowgraph.runtime.loose import LooseBatch
from flowgraph.runtime.stages.faults import mismatch


def without(carried: Collection[str], type: RecordType) -> RecordType:
    """The fields that the user's function gives: what is carried is never computed."""
    return RecordType(fields=tuple(f for f in type.fields if f.name not in carried), key=())


def from_records(
    stage: Stage, type: RecordType, records: Sequence[Any], carried: Mapping[str, Column]
) -> LooseBatch:
    """The user's records, settled, with the carried columns beside. Raises StageFailed."""
    samples = carried[SAMPLE.name].values
    try:
        made = LooseBatch.of(without(carried, type), records)
        for part in made.columns.values():
            if isinstance(part, Cells):
                part.require_plain()  # here its sample is known
        return beside(type, made, carried)
    except RecordMismatch as error:
        raise mismatch(stage, samples.tolist(), error) from error


def beside(type: RecordType, made: LooseBatch, carried: Mapping[str, Column]) -> LooseBatch:
    """Both in the type's order. Raises RecordMismatch where a made field is not as long as a
    carried one whose ragged dim it has."""
    whole: dict[str, Column | Cells] = {**made.columns, **carried}
    kept = [field for field in type.fields if field.name in carried and field.ragged]
    for field in type.fields if kept else ():
        if field.name in made.columns:
            for other in kept:
                _check_aligned(field, whole[field.name], other, whole[other.name])
    return LooseBatch(made.rows, {name: whole[name] for name in type.names})


def _check_aligned(
    field: Field, column: Column | Cells, other: Field, known: Column | Cells
) -> None:
    """Equal lengths in the ragged dims that both begin with."""
    shared = [a for a, b in zip(field.ragged, other.ragged, strict=False) if a == b]
    for level, dim in enumerate(shared):
        if field.ragged[: level + 1] != other.ragged[: level + 1]:
            return
        ours, theirs = np.diff(column.offsets[level]), np.diff(known.offsets[level])
        if not np.array_equal(ours, theirs):
            at = int(np.flatnonzero(ours != theirs)[0])
            row = at
            for outer in reversed(column.offsets[:level]):
                row = int(np.searchsorted(outer, row, side="right")) - 1
            raise RecordMismatch(
                f"has {ours[at]} {dim} where '{other.name}', kept, has {theirs[at]}",
                field=field.name,
                row=row,
            )
