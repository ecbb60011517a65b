"""A module's forward over items, and the backward that a trainer elsewhere asks for later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from flowgraph.ir.errors import InternalError
from flowgraph.ir.plan import Plan, Task
from flowgraph.ir.types import Field
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Column, Int64s
from flowgraph.runtime.item import Item
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer.applied import Applied, apply_module
from flowgraph.runtime.trainer.tensors import column_of, tensor_of

Collecting = Callable[[Sequence[int]], AbstractContextManager[None]]


@dataclass(slots=True, kw_only=True)
class _Activation:
    """A forward that waits for its gradient.

    values: [F, ...] with their graph, or None when the units had nothing to compute. spans: each
    unit's rows of them. waiting: units whose gradient has not come. gradient: [F, ...].
    """

    values: Tensor | None
    spans: dict[int, tuple[int, int]]
    waiting: set[int]
    gradient: Tensor | None = None


class ApplyTask:
    """One apply task on one rank.

    Law: an activation kept is used by exactly one backward, once all its units' gradients are in.
    """

    def __init__(
        self, plan: Plan, task: Task, module: nn.Module, *, exact: bool, device: torch.device
    ) -> None:
        self._name = task.name
        topology = Topology(plan)
        self._stage = next(one for one in topology.stages(task) if one.op == "apply")
        self._stream = plan.graph.stream(self._stage.outputs[0])
        self._input = self._stage.inputs[0]
        self._graph = plan.graph
        self._module = module
        self._exact = exact
        self._device = device
        self._learns = topology.gradient_source(task) is not None
        self._kept: dict[int, list[_Activation]] = {}
        self._part_of: dict[int, tuple[int, int]] = {}

    def apply(self, item: Item) -> dict[str, list[Batch]]:
        """Output batches, a unit each; activations stay when a gradient will come for them."""
        keep = self._learns and item.variant == 0
        parts = item.inputs[self._input]
        outputs: list[Batch] = []
        kept: list[_Activation] = []
        count = len(item.units)
        for index in [[i] for i in range(count)] if self._exact else [list(range(count))]:
            units = [item.units[i] for i in index]
            batches, activation = self._run(units, [parts[i] for i in index], keep)
            outputs += batches
            kept.append(activation)
        if keep:
            self._kept[item.id] = kept
            self._part_of[item.id] = (item.step, item.part)
        return {self._stream.name: outputs}

    def backward(
        self,
        item_id: int,
        units: Sequence[int],
        gradients: Sequence[Batch],
        collecting: Callable[[Sequence[int], tuple[int, int]], AbstractContextManager[None]],
    ) -> None:
        """Gradients of the item's outputs, for some or all of its units.

        Raises InternalError for an item without activations, or a unit whose gradient came before.
        """
        if item_id not in self._kept:
            raise InternalError(f"task '{self._name}': item {item_id} has no activations")
        part = self._part_of[item_id]
        for unit, batch in zip(units, gradients, strict=True):
            self._receive(self._activation(item_id, unit), unit, batch)
        ready = [one for one in self._kept[item_id] if not one.waiting]
        for activation in ready:
            self._kept[item_id].remove(activation)
            if activation.values is not None:
                with collecting(list(activation.spans), part):
                    activation.values.backward(activation.gradient)  # type: ignore[no-untyped-call]
        if not self._kept[item_id]:
            del self._kept[item_id], self._part_of[item_id]

    def require_done(self) -> None:
        """Raises InternalError when activations still wait: their gradient would be lost."""
        for item_id, activations in self._kept.items():
            waiting = sorted(unit for one in activations for unit in one.waiting)
            raise InternalError(
                f"task '{self._name}': item {item_id} waits for the gradient of units {waiting} "
                "while its module is told to update"
            )

    def _run(
        self, units: Sequence[int], parts: Sequence[Batch], keep: bool
    ) -> tuple[list[Batch], _Activation]:
        """One forward over some units, which are each handed out as views of it."""
        batch = Batch.concat(parts)
        applied = None
        if batch.rows:
            with torch.set_grad_enabled(keep):
                applied = apply_module(
                    self._module, self._stage, self._graph, batch, device=self._device
                )
        whole = batch.with_columns({self._output.name: self._column(applied)})
        whole = whole.select([name for name in self._stream.type.names if name in whole.columns])
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + part.rows)
        offsets = None if applied is None else applied.offsets
        activation = _Activation(
            values=None if applied is None or not applied.values.requires_grad else applied.values,
            spans={
                unit: _span(offsets, a, b)
                for unit, (a, b) in zip(units, pairwise(ends), strict=True)
            },
            waiting=set(units),
        )
        return [whole.slice(a, b) for a, b in pairwise(ends)], activation

    def _receive(self, activation: _Activation, unit: int, batch: Batch) -> None:
        if unit not in activation.waiting:
            raise InternalError(f"task '{self._name}': unit {unit} got its gradient twice")
        activation.waiting.remove(unit)
        if activation.values is None:
            return
        if activation.gradient is None:
            activation.gradient = torch.zeros_like(activation.values)
        start, stop = activation.spans[unit]
        column = batch[self._output.name]
        place = activation.gradient[start:stop]
        if column.values.shape[0] != stop - start:
            raise InternalError(
                f"task '{self._name}': unit {unit} has {stop - start} output rows, its gradient "
                f"{column.values.shape[0]}"
            )
        if stop > start:
            place.copy_(tensor_of(column, self._device))

    def _activation(self, item_id: int, unit: int) -> _Activation:
        for activation in self._kept[item_id]:
            if unit in activation.spans:
                return activation
        raise InternalError(
            f"task '{self._name}': item {item_id} has no unit {unit} that waits for a gradient"
        )

    @property
    def _output(self) -> Field:
        name = str(self._stage.attributes.get("output", "features"))
        field = self._stream.type.field(name)
        if field is None:
            raise InternalError(f"stream '{self._stream.name}' has no field '{name}'")
        return field

    def _column(self, applied: Applied | None) -> Column:
        if applied is None:
            return Column.empty(self._output)
        offsets = () if applied.offsets is None else (applied.offsets,)
        return column_of(applied.values, self._output.dtype, offsets)


def _span(offsets: Int64s | None, first: int, last: int) -> tuple[int, int]:
    """Output rows of the records first..last."""
    if offsets is None:
        return first, last
    return int(offsets[first]), int(offsets[last])
