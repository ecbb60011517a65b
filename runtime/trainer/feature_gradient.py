"""The gradient of joined features, on its way back to the module that made them."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.trainer.join import JoinedFeatures, Rows
from flowgraph.runtime.trainer.spec import TrainSpec
from flowgraph.runtime.trainer.tensors import column_of, on_device


class FeatureGradient:
    """Gathers the gradient of some rows' features over their micro-batches.

    Features that nothing was computed from (of a row without targets, or dropped) get zeros.
    """

    def __init__(self, spec: TrainSpec, rows: Rows, device: torch.device) -> None:
        self._joined: JoinedFeatures | None = None
        self._leaf: tuple[Tensor, Int64s] | None = None
        if spec.features is None or not spec.features.trained or rows.features is None:
            return
        self._joined = rows.features
        self._field = spec.features.field
        column = rows.features.column
        self._total = torch.zeros_like(on_device(column.values, column.dtype, device))

    def expect(self, leaf: Tensor, index: Int64s) -> None:
        """`leaf` holds the feature rows `index` in the next backward."""
        if self._joined is not None:
            self._leaf = (leaf.requires_grad_(), index)

    def collect(self) -> None:
        """After the backward: add what reached the leaf."""
        if self._leaf is not None:
            leaf, index = self._leaf
            if leaf.grad is not None:
                self._total.index_add_(0, torch.from_numpy(index).to(leaf.device), leaf.grad)
            self._leaf = None

    def batches(self) -> list[Batch]:
        """A batch a unit, aligned with the unit's items; nothing when they are not trained."""
        if self._joined is None:
            return []
        whole = self._joined.column
        column = column_of(self._total, whole.dtype, whole.offsets)
        all_rows = Batch(column.rows, {self._field: column})
        edges = accumulate(self._joined.unit_rows, initial=0)
        return [all_rows.slice(a, b) for a, b in pairwise(edges)]
