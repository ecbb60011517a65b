"""pack: rows of several ragged fields into packs, in one launch; unpack: its inverse and gradient.

Bytes moved: each row is read once and written once, padding is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from flowgraph.kernels.backend import apply, path
from flowgraph.kernels.layout import PackLayout, PackPlan
from flowgraph.kernels.ragged import Ragged

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """P packs of L rows.

    fields: name -> [P, L, ...]; padding rows hold the field's padding value.
    segment_ids: int32 [P, L], the segment's number within its pack from 0, -1 on padding.
    positions: int64 [P, L], the row's number within its segment, 0 on padding.
    layout: the addresses; `unpack(any [P, L, ...] tensor, layout)` brings rows back to samples.
    """

    fields: Mapping[str, Tensor]
    segment_ids: Tensor
    positions: Tensor
    layout: PackLayout

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """int64 [K + 1] over the packs laid end to end, see `PackLayout.cu_seqlens`."""
        return self.layout.cu_seqlens().to(self.segment_ids.device)

    @cached_property
    def max_seqlen(self) -> int:
        """Rows of the longest segment, a host number."""
        return self.layout.max_seqlen()

    @property
    def cu_seqlens_int32(self) -> Tensor:
        """`cu_seqlens` as int32 [K + 1]; ValueError when P * L does not fit."""
        if self.layout.rows > INT32_MAX:
            raise ValueError(f"cu_seqlens: {self.layout.rows} rows do not fit int32")
        return self.cu_seqlens.to(torch.int32)

    def __getitem__(self, name: str) -> Tensor:
        """The packed field, [P, L, ...]."""
        return self.fields[name]


def pack(
    fields: Mapping[str, Ragged],
    plan: PackPlan,
    *,
    padding: Mapping[str, int | float] | None = None,
) -> Packed:
    """Brings the rows of every field into the plan's packs.

    fields: at least one; all with the same samples, lengths and device; trailing dims are free.
    padding: value of padding rows by field, 0 where not named.
    Differentiable in every floating field; padding takes no gradient, rows outside the plan get
    zeros. Raises ValueError naming the field or the sample that does not fit.
    """
    pads = dict(padding or {})
    layout = plan.layout(_shared_lengths(fields, pads))
    values = [_owned(field) for field in fields.values()]
    paddings = [pads.get(name, 0) for name in fields]
    if torch.is_grad_enabled() and any(value.requires_grad for value in values):
        outputs = apply(_Pack, layout, paddings, *values)
    else:
        outputs = path("pack", values[0]).pack(values, layout, paddings)
    return Packed(
        fields=dict(zip(fields, outputs[2:], strict=True)),
        segment_ids=outputs[0],
        positions=outputs[1],
        layout=layout,
    )


def unpack(packed: Tensor, layout: PackLayout) -> Ragged:
    """The inverse of `pack` for one tensor laid out by `layout`: [P, L, ...] back to samples.

    Rows that the plan left out are 0. Differentiable. ValueError on another shape.
    """
    if tuple(packed.shape[:2]) != (layout.packs, layout.length):
        raise ValueError(
            f"packed: expects [{layout.packs}, {layout.length}, ...], got {list(packed.shape)}"
        )
    values = apply(_Unpack, layout, packed)
    return Ragged(values, layout.offsets)


def _shared_lengths(fields: Mapping[str, Ragged], padding: Mapping[str, int | float]) -> Tensor:
    """Rows of each sample, int64 [B], once every field is known to have the same."""
    if not fields:
        raise ValueError("pack expects at least one field")
    for name in padding:
        if name not in fields:
            raise ValueError(f"padding: no field {name!r}; fields are {sorted(fields)}")
    first, *others = fields
    device, lengths = fields[first].values.device, fields[first].lengths
    for name in others:
        field = fields[name]
        if field.offsets is fields[first].offsets and field.values.device == device:
            continue
        if field.values.device != device:
            raise ValueError(f"field {name!r}: expects {device}, got {field.values.device}")
        if field.samples != fields[first].samples:
            raise ValueError(
                f"field {name!r}: expects {fields[first].samples} samples as {first!r} has, "
                f"got {field.samples}"
            )
        if not torch.equal(field.lengths, lengths):
            sample = int(torch.nonzero(field.lengths != lengths)[0])
            raise ValueError(
                f"field {name!r}: sample {sample} has {int(field.lengths[sample])} rows, "
                f"{int(lengths[sample])} in {first!r}"
            )
    return lengths


def _owned(field: Ragged) -> Tensor:
    """The rows that belong to samples: [sum of lengths, ...], a view from row 0."""
    begin, end = int(field.offsets[0]), int(field.offsets[-1])
    if begin == 0 and end == field.values.shape[0]:
        return field.values
    return field.values[begin:end]


class _Pack(torch.autograd.Function):
    """(layout, paddings, *values) -> (segment_ids, positions, *packed)."""

    @staticmethod
    def forward(
        ctx: Any, layout: PackLayout, paddings: Sequence[int | float], *values: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.layout = layout
        ctx.set_materialize_grads(False)
        outputs: tuple[Tensor, ...] = path("pack", values[0]).pack(values, layout, paddings)
        ctx.mark_non_differentiable(*outputs[:2])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return (
            None,
            None,
            *(None if grad is None else apply(_Unpack, ctx.layout, grad) for grad in grads[2:]),
        )


class _Unpack(torch.autograd.Function):
    """(layout, packed) -> values."""

    @staticmethod
    def forward(ctx: Any, layout: PackLayout, packed: Tensor) -> Tensor:
        ctx.layout = layout
        values: Tensor = path("pack", packed).unpack(packed, layout)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, apply(_Pack, ctx.layout, [0], grad)[2]
