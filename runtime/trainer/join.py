"""An item's rows with what belongs to them: fields from beside, and features of their items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flowgraph.kernels import PlaceholderMismatch, find_placeholders
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column, Int64s, bounds_of
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.trainer.micro_batch import ranges
from flowgraph.runtime.trainer.spec import TOKENS, TrainSpec
from flowgraph.runtime.trainer.tensors import on_device, tensor_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JoinedFeatures:
    """F feature rows as the producer's batches hold them, and which of them each row takes.

    column: the features of all units' items, units behind one another. unit_rows: items of each
    unit. index: int64 [G], feature rows in the order of rows and their items. offsets: int64
    [B + 1], each row's share of `index`.
    """

    column: Column
    unit_rows: tuple[int, ...]
    index: Int64s
    places: Int64s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """B rows of one or several units behind one another.

    unit_rows: int64 [U + 1], where each unit's rows begin. visual: int64 [B], placeholder tokens.
    """

    batch: Batch
    units: tuple[int, ...]
    unit_rows: Int64s
    features: JoinedFeatures | None
    visual: Int64s

    @property
    def offsets(self) -> Int64s:
        """Of the tokens: int64 [B + 1]."""
        return self.batch[TOKENS].offsets[0]


def join_rows(spec: TrainSpec, inputs: Mapping[str, Sequence[Batch]], units: Sequence[int]) -> Rows:
    """inputs: by stream, a batch a unit. units: their numbers.

    Raises StageFailed naming the row without a partner beside it, or whose placeholder tokens
    are not as many as its features.
    """
    parts = inputs[spec.samples]
    batch = Batch.concat(parts)
    for stream in spec.beside:
        other = Batch.concat(inputs[stream])
        batch = batch.with_columns(
            {**other.take(_partners(spec, batch, other, stream)).columns, **batch.columns}
        )
    features, visual = None, np.zeros(batch.rows, np.int64)
    if spec.features is not None:
        features, visual = _join_features(spec, inputs[spec.features.stream], batch)
    return Rows(
        batch=batch,
        units=tuple(units),
        unit_rows=bounds_of(np.array([part.rows for part in parts], np.int64)),
        features=features,
        visual=visual,
    )


def _partners(spec: TrainSpec, batch: Batch, other: Batch, stream: str) -> Int64s:
    """For each row the index of the record of its key, int64 [B]."""
    rows, records = _identities(batch, other, spec.key)
    order = np.argsort(records, kind="stable")
    at = np.searchsorted(records[order], rows)
    found = np.minimum(at, max(0, records.size - 1))
    missing = np.arange(batch.rows)
    if records.size:
        missing = np.flatnonzero(records[order][found] != rows)
    if missing.size:
        raise _failed(spec, batch, int(missing[0]), f"has no record in '{stream}' to join")
    return order[found]


def _join_features(
    spec: TrainSpec, parts: Sequence[Batch], batch: Batch
) -> tuple[JoinedFeatures, Int64s]:
    """Items regrouped by their parents' keys, each row's in the order of the items' own key.

    Also the placeholder tokens of each row, int64 [B].
    """
    assert spec.features is not None
    items = Batch.concat(parts)
    rows, parents = _identities(batch, items, spec.features.key)
    order = np.lexsort((items[spec.features.item].values, parents))
    first = np.searchsorted(parents[order], rows, side="left")
    counts = np.searchsorted(parents[order], rows, side="right") - first
    column = items[spec.features.field]
    taken = Column("int64", np.arange(column.values.shape[0]), column.offsets).take(
        order[ranges(first, counts)]
    )
    of_items = bounds_of(counts)
    given = np.diff(taken.offsets[0][of_items]) if taken.offsets else counts
    places = _placeholders(spec, batch, given)
    joined = JoinedFeatures(
        column=column,
        unit_rows=tuple(part.rows for part in parts),
        index=taken.values,
        places=places,
    )
    return joined, given


def _identities(batch: Batch, other: Batch, key: Sequence[str]) -> tuple[Int64s, Int64s]:
    """Numbers that are equal where the key fields of a row and of another record are."""
    if len(key) == 1:
        return batch[key[0]].values, other[key[0]].values
    both = [np.concatenate((batch[name].values, other[name].values)) for name in key]
    _, numbers = np.unique(np.stack(both, axis=1), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    return numbers[: batch.rows], numbers[batch.rows :]


def _placeholders(spec: TrainSpec, batch: Batch, features: Int64s) -> Int64s:
    """The flat tokens that features take the place of, int64 [G]. features: int64 [B], of each row.

    Raises StageFailed naming the first row whose placeholder tokens are not as many.
    """
    tokens = batch[TOKENS]
    host = torch.device("cpu")
    try:
        found = find_placeholders(
            tensor_of(tokens, host),
            spec.placeholder,
            on_device(tokens.offsets[0], "int64", host),
            torch.from_numpy(features),
        )
    except PlaceholderMismatch as error:
        raise _failed(spec, batch, error.sample, error.cause) from error
    places: Int64s = found.numpy()
    return places


def _failed(spec: TrainSpec, batch: Batch, row: int, cause: str) -> StageFailed:
    stage = spec.join or spec.stage
    return StageFailed(stage.name, int(batch["sample"].values[row]), cause, at=stage.at)
