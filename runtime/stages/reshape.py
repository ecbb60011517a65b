"""Stages without the user's code: unnest, group, join. Columns in, columns out.

Each looks at the declared output type and at which ragged dims a field has gained or lost.
"""

from collections.abc import Sequence

import numpy as np

from flowgraph.ir.errors import InternalError
from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.column import Int64s, bounds_of


def unnest(batch: Batch, source: RecordType, type: RecordType, dim: str) -> Batch:
    """One row an entry of the ragged `dim`: N samples to 0..n items each, in order.

    A field whose outermost dim is `dim` loses it; `item` counts from 0 within its sample; any
    other field of the output is repeated for each of the sample's items.
    """
    fields = [f.name for f in source.fields if f.ragged[:1] == (dim,)]
    if not fields:
        raise InternalError(f"unnest: no field has '{dim}' as its outermost ragged dim")
    bounds = batch[fields[0]].offsets[0]
    sizes = np.diff(bounds)
    parent = np.repeat(np.arange(batch.rows), sizes)
    columns: dict[str, Column] = {}
    for field in type.fields:
        if field.name == "item":
            columns["item"] = Column("int64", np.arange(bounds[-1]) - bounds[:-1][parent])
        elif field.name in fields:
            column = batch[field.name]
            columns[field.name] = Column(column.dtype, column.values, column.offsets[1:])
        else:
            columns[field.name] = batch[field.name].take(parent)
    return Batch(int(bounds[-1]), columns)


def ranked(batch: Batch, by: Sequence[str]) -> Int64s:
    """Rows sorted by these key fields, the first being the outermost; ties keep their order."""
    if not by:
        return np.arange(batch.rows)
    return np.lexsort([batch[name].values for name in reversed(by)]).astype(np.int64, copy=False)


def group_offsets(batch: Batch, by: Sequence[str]) -> Int64s:
    """Offsets of the runs of rows that share all key fields: int64 [groups + 1]."""
    if batch.rows == 0:
        return np.zeros(1, np.int64)
    changes = np.zeros(batch.rows - 1, np.bool_)
    for name in by:
        changes |= np.diff(batch[name].values) != 0
    inner = np.flatnonzero(changes) + 1
    return np.concatenate([[0], inner, [batch.rows]]).astype(np.int64, copy=False)


def group(batch: Batch, by: Sequence[str], size: int) -> Batch:
    """The rows sorted so that each group is one run.

    Raises ValueError naming the group when `size` is not 0 and a group has other than `size` rows.
    """
    rows = ranked(batch, by)
    in_order = np.array_equal(rows, np.arange(batch.rows))
    sorted_ = batch if in_order else batch.take(rows)
    if size:
        bounds = group_offsets(sorted_, by)
        odd = np.flatnonzero(np.diff(bounds) != size)
        if odd.size:
            at = int(bounds[odd[0]])
            named = ", ".join(f"{name} {sorted_[name].values[at]}" for name in by)
            raise ValueError(
                f"the group of {named} has {np.diff(bounds)[odd[0]]} rows, expects {size}"
            )
    return sorted_


def join(parts: Sequence[Batch], types: Sequence[RecordType], type: RecordType) -> Batch:
    """The first stream's rows, each with the fields of its partners from the others.

    Partners share the key fields of the first stream. Where these are a partner's whole key, there
    is one for each row. Else they are a row's items: their fields gain one ragged dim of the number
    of items, in item order. Raises InternalError for a partner without a row, or a row without its
    one partner: membership is decided before.
    """
    parents, key = parts[0], types[0].key
    columns = {name: parents[name] for name in type.names if name in parents.columns}
    for items, items_type in zip(parts[1:], types[1:], strict=True):
        wanted = [name for name in type.names if name in items_type.names and name not in columns]
        owner = _owners(parents, items, key)
        rows = np.lexsort([*(items[k].values for k in reversed(items_type.key)), owner])
        counts = np.bincount(owner, minlength=parents.rows)
        single = items_type.key == key
        if single and (counts != 1).any():
            raise InternalError(f"join: row {int(np.flatnonzero(counts != 1)[0])} has no partner")
        bounds = () if single else (bounds_of(counts),)
        for name in wanted:
            column = items[name].take(rows.astype(np.int64, copy=False))
            columns[name] = Column(column.dtype, column.values, (*bounds, *column.offsets))
    return Batch(parents.rows, {name: columns[name] for name in type.names})


def _owners(parents: Batch, items: Batch, key: Sequence[str]) -> Int64s:
    """For each item, the parent row with its key: int64 [items]."""
    places = {
        identity: row
        for row, identity in enumerate(zip(*(parents[k].values.tolist() for k in key), strict=True))
    }
    try:
        owners = [
            places[identity]
            for identity in zip(*(items[k].values.tolist() for k in key), strict=True)
        ]
    except KeyError as error:
        raise InternalError(
            f"join: an item of {dict(zip(key, error.args[0], strict=True))} has no parent row"
        ) from error
    return np.array(owners, np.int64)
