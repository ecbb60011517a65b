"""pack and unpack: one launch that copies or fills byte ranges, whatever field they belong to.

A pack is a list of byte ranges: the rows of one sample in one field are contiguous on both sides.
The host splits them into items of at most 32 KiB; a program does one item with the widest unit that
divides both addresses and the size. Addresses are int64 numbers in the table, so that any number
of fields, of any dtypes, share the launch.
"""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from flowgraph.kernels.device.variant import BLOCK, WARPS, Variant, launch, upload
from flowgraph.kernels.layout import Int64s, PackLayout

# Bytes of one item: 4 turns of 8 KiB, so that a large pack gives every processor several programs
# while the 40 bytes that describe an item stay near a thousandth of what it moves.
ITEM_BYTES = 32768
COUNT_UP = 5
COLUMNS = 5


@triton.jit
def _move(
    source,  # address of the first unit, 0 to fill
    target,  # address of the first unit
    count,  # elements
    payload,  # bits to fill with
    ELEMENT: tl.constexpr,  # the integer type of an element
    UNIT: tl.constexpr,  # bytes that divide both addresses
    BLOCK: tl.constexpr,
):
    # the compiler forgets what it knew of a number when it becomes an address
    to = tl.multiple_of(target.to(tl.pointer_type(ELEMENT)), UNIT)
    if source == 0:
        bits = tl.full([BLOCK], 0, tl.int64) + payload
        for first in range(0, count, BLOCK):
            within = first + tl.arange(0, BLOCK)
            tl.store(to + within, bits.to(ELEMENT), mask=within < count)
    else:
        begin = tl.multiple_of(source.to(tl.pointer_type(ELEMENT)), UNIT)
        for first in range(0, count, BLOCK):
            within = first + tl.arange(0, BLOCK)
            value = tl.load(begin + within, mask=within < count)
            tl.store(to + within, value, mask=within < count)


@triton.jit
def move_ranges(
    items,  # int64 [programs, 5]: source and target address / unit, units, payload, kind
    BLOCK: tl.constexpr,
):
    item = items + tl.program_id(0).to(tl.int64) * 5
    source = tl.load(item)
    target = tl.load(item + 1)
    count = tl.load(item + 2).to(tl.int32)
    payload = tl.load(item + 3)
    kind = tl.load(item + 4)
    # the widest unit has a block size of its own: were it shared, the compiler would give its
    # layout to all the others and take them through shared memory
    if kind == 4:
        _move(source * 16, target * 16, count * 2, payload, tl.int64, 16, BLOCK)
    elif kind == 3:
        _move(source * 8, target * 8, count, payload, tl.int64, 8, BLOCK * 2)
    elif kind == 2:
        _move(source * 4, target * 4, count, payload, tl.int32, 4, BLOCK * 2)
    elif kind == 1:
        _move(source * 2, target * 2, count, payload, tl.int16, 2, BLOCK * 2)
    elif kind == 0:
        _move(source, target, count, payload, tl.int8, 1, BLOCK * 2)
    else:  # count up from `payload`
        to = (target * 8).to(tl.pointer_type(tl.int64))
        for first in range(0, count, BLOCK * 2):
            within = first + tl.arange(0, BLOCK * 2)
            tl.store(to + within, payload + within, mask=within < count)


VARIANTS = (
    Variant(
        kernel=move_ranges,
        label="any fields",
        signature={"items": "*i64"},
        constexprs={"BLOCK": BLOCK},
        aligned=("items",),
    ),
)


def pack(
    values: Sequence[Tensor], layout: PackLayout, paddings: Sequence[int | float]
) -> tuple[Tensor, ...]:
    """(segment_ids, positions, *packed) for values [T, ...] each; see the reference.

    Values whose rows are not dense in memory are made so first (one copy more).
    """
    device = values[0].device
    shape = (layout.packs, layout.length)
    segment_ids = torch.empty(shape, dtype=torch.int32, device=device)
    positions = torch.empty(shape, dtype=torch.int64, device=device)
    gap_start, gap_size = layout.gaps()
    items = [
        _fills(segment_ids, layout.target, layout.sizes, layout.segments()),
        _fills(segment_ids, gap_start, gap_size, np.full_like(gap_size, -1)),
        _count_up(positions, layout),
        _fills(positions, gap_start, gap_size, np.zeros_like(gap_size)),
    ]
    dense = [value.contiguous() for value in values]
    packed = [value.new_empty((*shape, *value.shape[1:])) for value in dense]
    for value, out, padding in zip(dense, packed, paddings, strict=True):
        row = _row_bytes(value.shape[1:], value.dtype)
        items.append(
            range_items(
                value.data_ptr() + layout.source * row,
                out.data_ptr() + layout.target * row,
                layout.sizes * row,
            )
        )
        items.append(_fills(out, gap_start, gap_size, np.full_like(gap_size, padding, float)))
    _launch(items, device)
    return segment_ids, positions, *packed


def unpack(packed: Tensor, layout: PackLayout) -> Tensor:
    """Values [T, ...] of packed [P, L, ...]; rows of samples that were left out are 0."""
    dense = packed.contiguous()
    rows = int(layout.offsets[-1])
    shape = (rows, *packed.shape[2:])
    whole = int(layout.sizes.sum()) == rows
    out = packed.new_empty(shape) if whole else packed.new_zeros(shape)
    row = _row_bytes(packed.shape[2:], packed.dtype)
    items = range_items(
        dense.data_ptr() + layout.target * row,
        out.data_ptr() + layout.source * row,
        layout.sizes * row,
    )
    _launch([items], packed.device)
    return out


def range_items(
    source: Int64s, target: Int64s, nbytes: Int64s, payload: Int64s | None = None
) -> Int64s:
    """Items [n, 5] that copy ranges (or fill them with `payload`), all in bytes: int64 [R] each."""
    widths = source | target | nbytes | 16
    shift = np.round(np.log2(widths & -widths)).astype(np.int64)
    pieces = -(-nbytes // ITEM_BYTES)
    of = np.repeat(np.arange(nbytes.size), pieces)
    skip = (np.arange(of.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * ITEM_BYTES
    items = np.zeros((of.size, COLUMNS), dtype=np.int64)
    shift = shift[of]
    items[:, 0] = 0 if payload is not None else (source[of] + skip) >> shift
    items[:, 1] = (target[of] + skip) >> shift
    items[:, 2] = np.minimum(nbytes[of] - skip, ITEM_BYTES) >> shift
    items[:, 3] = 0 if payload is None else payload[of]
    items[:, 4] = shift
    return items


def _fills(out: Tensor, start: Int64s, size: Int64s, values: NDArray[Any]) -> Int64s:
    """Items that fill rows of `out` ([P, L, ...]), a value a range."""
    row = _row_bytes(out.shape[2:], out.dtype)
    payload = np.empty(start.size, dtype=np.int64)
    for value in np.unique(values):
        payload[values == value] = _pattern(value.item(), out.dtype)
    none = np.zeros_like(start)
    return range_items(none, out.data_ptr() + start * row, size * row, payload)


def _count_up(positions: Tensor, layout: PackLayout) -> Int64s:
    """Items that number each sample's rows in `positions` (int64 [P, L]) from 0."""
    items = range_items(
        np.zeros_like(layout.sizes),
        positions.data_ptr() + layout.target * 8,
        layout.sizes * 8,
        layout.order,
    )
    # the same pieces in units of 8 bytes; what a piece starts from is its place in the sample
    units = items[:, 2] << np.maximum(items[:, 4] - 3, 0)
    items[:, 1] <<= np.maximum(items[:, 4] - 3, 0)
    begins = np.repeat(np.cumsum(layout.sizes) - layout.sizes, -(-layout.sizes * 8 // ITEM_BYTES))
    items[:, 2], items[:, 3] = units, np.cumsum(units) - units - begins
    items[:, 4] = COUNT_UP
    return items


def _pattern(value: float, dtype: torch.dtype) -> int:
    """The bits of `value` as `dtype`, repeated over 8 bytes, as a signed number."""
    filled = torch.full((8 // dtype.itemsize,), value, dtype=dtype)
    return int(filled.view(torch.int64)[0])


def _row_bytes(trailing: Sequence[int], dtype: torch.dtype) -> int:
    return math.prod(trailing) * dtype.itemsize


def _launch(items: Sequence[Int64s], device: torch.device) -> None:
    table = np.concatenate(items)
    if table.shape[0]:
        launch(
            move_ranges,
            (table.shape[0],),
            device,
            upload(table, device),
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
