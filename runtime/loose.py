"""Records of one type that are still where their rows hold them: checked, not copied.

A batch costs a copy into memory of its own, and putting it in the pool another. Rows that are meant
for the pool are copied there once, from where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch, Layout, join_parts, layout_of, write_columns
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.column import Column
from flowgraph.runtime.rows import parts_of


@dataclass(frozen=True, slots=True, eq=False)
class LooseBatch:
    """What `Batch.from_rows` would make of the rows, for `Segment.try_write`.

    The rows must not change before it is written.
    """

    rows: int
    columns: Mapping[str, Column | Cells]

    @classmethod
    def of(cls, type: RecordType, rows: Sequence[Any]) -> LooseBatch:
        """Raises RecordMismatch, as `Batch.from_rows` does."""
        return cls(len(rows), parts_of(type, rows))

    def layout(self) -> tuple[Layout, int]:
        """As `Batch.layout`."""
        return layout_of(self.rows, self.columns)

    def write_into(self, memory: memoryview) -> None:
        """As `Batch.write_into`. Raises RecordMismatch for a tensor that is not memory of here."""
        write_columns(self.rows, self.columns, memory)

    def select(self, names: Iterable[str]) -> LooseBatch:
        """These columns only, in this order. Raises KeyError for one that is not there."""
        return LooseBatch(self.rows, {name: self.columns[name] for name in names})


Made = Batch | LooseBatch
"""Records that were made, joined or not yet."""


def joined(made: Made) -> Batch:
    """The same records with every column in one piece. Raises what `write_into` does."""
    if isinstance(made, Batch):
        return made
    return Batch(made.rows, join_parts(made.rows, made.columns))
