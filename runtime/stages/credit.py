"""Credit: from the rewards of whole groups to an advantage a row, by an algorithm's function."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flowgraph.runtime.batch import Batch, Column
from flowgraph.runtime.stages.reshape import group_offsets, ranked


def add_advantage(
    batch: Batch,
    function: Callable[..., Any],
    by: Sequence[str],
    params: dict[str, Any],
    *,
    size: int = 0,
) -> Batch:
    """The rows in their order with a float32 column `advantage`.

    Groups are the rows that share the key fields `by`, `size` at a time if that is not 0. Calls
    `function(rewards float32 [n], group_offsets int64 [groups + 1], **params)`, which gives n
    numbers in the same order. Raises ValueError when it gives another number, or a number that is
    not finite.
    """
    rows = ranked(batch, by)
    bounds = group_offsets(batch.take(rows).select(by), by, size)
    rewards = batch["reward"].values[rows]
    given = np.asarray(function(rewards, bounds, **params)) if batch.rows else np.zeros(0)
    if given.shape != rewards.shape:
        raise ValueError(f"gave advantages of shape {list(given.shape)} for {rewards.size} rows")
    if not np.isfinite(given).all():
        raise ValueError(f"gave an advantage that is not finite: {given[~np.isfinite(given)][0]}")
    advantage = np.empty(batch.rows, np.float32)
    advantage[rows] = given
    return batch.with_columns({"advantage": Column("float32", advantage)})
