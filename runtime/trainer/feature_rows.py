"""The gradient of joined features, on its way back to the module that made them."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from torch import Tensor

from flowgraph.kernels import gather_rows, scatter_rows
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Int64s
from flowgraph.runtime.trainer.join import JoinedFeatures, Rows
from flowgraph.runtime.trainer.spec import TrainSpec
from flowgraph.runtime.trainer.tensors import column_of, tensor_of


class FeatureRows:
    """The features of some rows: handed out to micro-batches, their gradient gathered again.

    Features that nothing was computed from (of a row without targets, or dropped) get zeros.
    """

    def __init__(self, spec: TrainSpec, rows: Rows, device: torch.device, *, learn: bool) -> None:
        """learn: whether backward passes will follow."""
        assert spec.features is not None
        assert rows.features is not None
        self._joined: JoinedFeatures = rows.features
        self._field = spec.features.field
        self._trained = spec.features.trained and learn
        self._values = tensor_of(self._joined.column, device)
        self._leaf: tuple[Tensor, Tensor] | None = None
        self._collected: list[tuple[Tensor, Tensor]] = []

    def take(self, here: Int64s) -> Tensor:
        """The features of the placeholders number `here`, [G, ...]; a leaf of the next backward."""
        index = torch.from_numpy(self._joined.index[here]).to(self._values.device)
        leaf = gather_rows(self._values, index)
        if self._trained:
            self._leaf = (index, leaf.requires_grad_())
        return leaf

    def collect(self) -> None:
        """After the backward: keep what reached the leaf."""
        if self._leaf is not None:
            index, leaf = self._leaf
            if leaf.grad is not None:
                self._collected.append((index, leaf.grad))
            self._leaf = None

    def gradients(self) -> list[Batch]:
        """A batch a unit, aligned with the unit's items; nothing when they are not trained."""
        if not self._trained:
            return []
        whole = self._joined.column
        column = column_of(self._total(), whole.dtype, whole.offsets)
        all_rows = Batch(column.rows, {self._field: column})
        edges = accumulate(self._joined.unit_rows, initial=0)
        return [all_rows.slice(a, b) for a, b in pairwise(edges)]

    def _total(self) -> Tensor:
        if not self._collected:
            return torch.zeros_like(self._values)
        index, gradients = zip(*self._collected, strict=True)
        return scatter_rows(torch.cat(gradients), torch.cat(index), self._values.shape[0])
