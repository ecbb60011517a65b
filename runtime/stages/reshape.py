"""Stages without the user's code: unnest, group, join. Columns in, columns out.

Each looks at the declared output type and at which ragged dims a field has gained or lost.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flowgraph.ir.errors import InternalError
from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.column import Int64s, bounds_of
from flowgraph.runtime.loose import LooseBatch, Made


def unnest(batch: Made, source: RecordType, type: RecordType, dim: str) -> LooseBatch:
    """One row an entry of the ragged `dim`: N samples to 0..n items each, in order, no value moved.

    A field whose outermost dim is `dim` loses it; `item` counts from 0 within its sample; any
    other field of the output is repeated for each of the sample's items.
    """
    fields = [f.name for f in source.fields if f.ragged[:1] == (dim,)]
    if not fields:
        raise InternalError(f"unnest: no field has '{dim}' as its outermost ragged dim")
    parts = batch.columns
    bounds = parts[fields[0]].offsets[0]
    sizes = np.diff(bounds)
    parent = np.repeat(np.arange(batch.rows), sizes)
    columns: dict[str, Column | Cells] = {}
    for field in type.fields:
        if field.name == "item":
            columns["item"] = Column("int64", np.arange(bounds[-1]) - bounds[:-1][parent])
            continue
        part = parts[field.name]
        if field.name not in fields:
            columns[field.name] = (part.column() if isinstance(part, Cells) else part).take(parent)
        elif isinstance(part, Cells):
            columns[field.name] = replace(part, offsets=part.offsets[1:])
        else:
            columns[field.name] = Column(part.dtype, part.values, part.offsets[1:])
    return LooseBatch(int(bounds[-1]), columns)


def ranked(batch: Batch, by: Sequence[str]) -> Int64s:
    """Rows sorted by these key fields, the first being the outermost; ties keep their order."""
    if not by:
        return np.arange(batch.rows)
    return np.lexsort([batch[name].values for name in reversed(by)]).astype(np.int64, copy=False)


def group_offsets(batch: Batch, by: Sequence[str], size: int = 0) -> Int64s:
    """Offsets of the groups of rows that are sorted by their keys: int64 [groups + 1].

    A group is a run of rows that share all key fields, cut into runs of `size` if that is not 0.
    """
    if batch.rows == 0:
        return np.zeros(1, np.int64)
    starts = np.ones(batch.rows, np.bool_)
    starts[1:] = False
    for name in by:
        starts[1:] |= np.diff(batch[name].values) != 0
    begin = np.flatnonzero(starts)
    if size:
        within = np.arange(batch.rows) - np.repeat(begin, np.diff([*begin, batch.rows]))
        begin = np.flatnonzero(within % size == 0)
    return np.concatenate([begin, [batch.rows]]).astype(np.int64, copy=False)


class UnevenGroup(ValueError):
    """A key's rows cannot be divided into groups of the size asked for; `sample` is one of them."""

    def __init__(self, problem: str, sample: int | None) -> None:
        super().__init__(problem)
        self.sample = sample


def group(batch: Batch, by: Sequence[str], size: int) -> Batch:
    """The rows sorted so that each group is one run.

    Raises UnevenGroup naming the key whose rows groups of `size`, if that is not 0, do not divide.
    """
    rows = ranked(batch, by)
    in_order = np.array_equal(rows, np.arange(batch.rows))
    sorted_ = batch if in_order else batch.take(rows)
    if size:
        bounds = group_offsets(sorted_, by)
        odd = np.flatnonzero(np.diff(bounds) % size)
        if odd.size:
            at, count = int(bounds[odd[0]]), int(np.diff(bounds)[odd[0]])
            named = ", ".join(f"{name} {sorted_[name].values[at]}" for name in by)
            sample = int(sorted_["sample"].values[at]) if "sample" in sorted_.columns else None
            raise UnevenGroup(
                f"{named} has {count} rows, which groups of {size} do not divide: "
                f"{count} = {count // size} x {size} + {count % size}",
                sample,
            )
    return sorted_


def join(parts: Sequence[Batch], types: Sequence[RecordType], type: RecordType) -> Batch:
    """The first stream's rows, each with the fields of its partners from the others.

    Partners share the key fields of the first stream. Where these are a partner's whole key, there
    is one for each row, and those of no row are left out; ValueError names a row without one. Else
    they are a row's items: their fields gain one ragged dim of the number of items, in item order.
    Raises InternalError for an item without a row: membership is decided before.
    """
    parents, key = parts[0], types[0].key
    columns = {name: parents[name] for name in type.names if name in parents.columns}
    for items, items_type in zip(parts[1:], types[1:], strict=True):
        wanted = [name for name in type.names if name in items_type.names and name not in columns]
        bounds: tuple[Int64s, ...] = ()
        if items_type.key == key:
            rows = _partners(parents, items, key)
        else:
            rows, bounds = _items(parents, items, items_type.key, key)
        for name in wanted:
            column = items[name].take(rows)
            columns[name] = Column(column.dtype, column.values, (*bounds, *column.offsets))
    return Batch(parents.rows, {name: columns[name] for name in type.names})


def _partners(parents: Batch, others: Batch, key: Sequence[str]) -> Int64s:
    """For each parent row the row of its key: int64 [parents]."""
    places = _places(others, key)
    identities = _keys(parents, key)
    lost = next((identity for identity in identities if identity not in places), None)
    if lost is not None:
        named = ", ".join(f"{name} {value}" for name, value in zip(key, lost, strict=True))
        raise ValueError(f"{named} has no record to join with")
    return np.array([places[identity] for identity in identities], np.int64)


def _items(
    parents: Batch, items: Batch, items_key: Sequence[str], key: Sequence[str]
) -> tuple[Int64s, tuple[Int64s]]:
    """Rows of items by parent and item, int64 [items]; and each parent's share of them."""
    places = _places(parents, key)
    identities = _keys(items, key)
    lost = next((identity for identity in identities if identity not in places), None)
    if lost is not None:
        raise InternalError(
            f"join: an item of {dict(zip(key, lost, strict=True))} has no parent row"
        )
    owner = np.array([places[identity] for identity in identities], np.int64)
    rows = np.lexsort([*(items[k].values for k in reversed(items_key)), owner])
    counts = np.bincount(owner, minlength=parents.rows)
    return rows.astype(np.int64, copy=False), (bounds_of(counts),)


def _places(batch: Batch, key: Sequence[str]) -> dict[tuple[int, ...], int]:
    return {identity: row for row, identity in enumerate(_keys(batch, key))}


def _keys(batch: Batch, key: Sequence[str]) -> list[tuple[int, ...]]:
    return list(zip(*(batch[name].values.tolist() for name in key), strict=True))
