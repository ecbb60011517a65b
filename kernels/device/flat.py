"""flatten, unflatten_, digest128: copy, cast and digest in one pass, then one small pass.

The host cuts every tensor at the flat buffer's blocks of 8 KiB; a program copies one piece and adds
its words' products to its block's two sums. The additions are integer and atomic: in whatever
order programs run, the sums are the same.
"""

# Triton reads annotations as argument types, so the kernels have none:
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from flowgraph.kernels.device.variant import WARPS, Variant, launch, upload
from flowgraph.kernels.digest import BLOCK_BYTES, KEYS, MASK, ODD, mix
from flowgraph.kernels.flat import ALIGN, FlatEntry
from flowgraph.kernels.layout import Int64s

BLOCK_HASHES = 1024
ALIGN_UNIT = 16
FLOATS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
TRITON = {
    "fp32": tl.float32, "bf16": tl.bfloat16, "fp16": tl.float16,
    "i32": tl.int32, "i16": tl.int16, "i8": tl.int8,
}  # fmt: skip


@triton.jit
def _cast(value, FROM: tl.constexpr, TO: tl.constexpr):
    """`value` as TO; fp32 to bf16 rounds to nearest even in integers: every device agrees."""
    if FROM == TO:
        result = value
    elif tl.bfloat16 == TO:
        wide = value.to(tl.float32)
        bits = wide.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        quiet = tl.where(wide != wide, 0x7FC0, rounded)
        result = quiet.to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        result = value.to(tl.float32).to(TO)
    return result


@triton.jit
def _words(value, ELEMENT: tl.constexpr, BLOCK: tl.constexpr):
    """The elements' bytes as 32-bit words in int64, one for every 4 bytes."""
    if ELEMENT.primitive_bitwidth == 32:
        word = value.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    else:
        if ELEMENT.primitive_bitwidth == 16:
            half = value.to(tl.int16, bitcast=True).to(tl.int64) & 0xFFFF
        else:
            even, odd = tl.split(tl.reshape(value.to(tl.int64) & 0xFF, [BLOCK // 2, 2]))
            half = even | (odd << 8)
        low, high = tl.split(tl.reshape(half, [2048, 2]))
        word = low | (high << 16)
    return word


@triton.jit
def flat_copy(
    items,  # int64 [programs, 6]: tensor and flat address / UNIT, elements, with zeros, word, block
    keys,  # int64 [2, 2048]
    hashes,  # int64 [blocks, 2], zeros
    TENSOR: tl.constexpr,  # element type of the tensor
    FLAT: tl.constexpr,  # element type in the flat buffer
    TO_FLAT: tl.constexpr,  # 1 to the buffer, 0 from the buffer, -1 only digest it
    TENSOR_UNIT: tl.constexpr,  # bytes that tensor addresses count
    FLAT_UNIT: tl.constexpr,
    BLOCK: tl.constexpr,  # elements of 8 KiB of FLAT
):
    item = items + tl.program_id(0).to(tl.int64) * 6
    # the compiler forgets what it knew of a number when it becomes an address
    tensor = (tl.load(item) * TENSOR_UNIT).to(tl.pointer_type(TENSOR))
    tensor = tl.multiple_of(tensor, TENSOR_UNIT)
    flat = (tl.load(item + 1) * FLAT_UNIT).to(tl.pointer_type(FLAT))
    flat = tl.multiple_of(flat, FLAT_UNIT)
    count = tl.load(item + 2)
    within = tl.arange(0, BLOCK)
    source = tensor if TO_FLAT == 1 else flat
    # a whole piece needs no mask, and loads of 16 bytes need to have none
    if count == BLOCK:
        value = tl.load(source + within)
    else:
        value = tl.load(source + within, mask=within < count, other=0)
    flat_value = _cast(value, TENSOR, FLAT) if TO_FLAT == 1 else value
    if TO_FLAT == 1:
        if count == BLOCK:
            tl.store(flat + within, flat_value)
        else:
            tl.store(flat + within, flat_value, mask=within < tl.load(item + 3))
    if TO_FLAT == 0:
        tensor_value = _cast(value, FLAT, TENSOR)
        if count == BLOCK:
            tl.store(tensor + within, tensor_value)
        else:
            tl.store(tensor + within, tensor_value, mask=within < count)
    words = _words(flat_value, FLAT, BLOCK)
    at = tl.load(item + 4) * 4 + tl.arange(0, 2048)
    sums = hashes + tl.load(item + 5) * 2
    first = tl.load(keys + at, mask=at < 2048, other=0)
    second = tl.load(keys + 2048 + at, mask=at < 2048, other=0)
    tl.atomic_add(sums, tl.sum(words * first, 0), sem="relaxed")
    tl.atomic_add(sums + 1, tl.sum(words * second, 0), sem="relaxed")


@triton.jit
def _mix(value):
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB
    return value ^ (value >> 31)


@triton.jit
def mix_blocks(
    hashes,  # int64 [blocks, 2]
    totals,  # int64 [2], zeros
    blocks,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = block < blocks
    number = (block + 1).to(tl.uint64)
    first = tl.load(hashes + block * 2, mask=mask, other=0).to(tl.uint64)
    second = tl.load(hashes + block * 2 + 1, mask=mask, other=0).to(tl.uint64)
    first = _mix(first + number * 0x9E3779B97F4A7C15).to(tl.int64)
    second = _mix(second + number * 0xC2B2AE3D27D4EB4F).to(tl.int64)
    tl.atomic_add(totals, tl.sum(tl.where(mask, first, 0), 0), sem="relaxed")
    tl.atomic_add(totals + 1, tl.sum(tl.where(mask, second, 0), 0), sem="relaxed")


def _warps(flat: str) -> int:
    """8 KiB of single bytes are 8192 elements, 64 for each of 128 threads: too many registers."""
    return 2 * WARPS if flat == "i8" else WARPS


def _variant(tensor: str, flat: str, mode: int) -> Variant:
    size = TRITON[flat].primitive_bitwidth // 8
    return Variant(
        kernel=flat_copy,
        label={1: f"{tensor} to {flat}", 0: f"{flat} back to {tensor}", -1: "digest"}[mode],
        signature={"items": "*i64", "keys": "*i64", "hashes": "*i64"},
        constexprs={
            "TENSOR": TRITON[tensor],
            "FLAT": TRITON[flat],
            "TO_FLAT": mode,
            "TENSOR_UNIT": ALIGN_UNIT,
            "FLAT_UNIT": ALIGN_UNIT,
            "BLOCK": BLOCK_BYTES // size,
        },
        aligned=("items", "keys", "hashes"),
        store=0 if mode < 0 else 16,
        warps=_warps(flat),
    )


VARIANTS = (
    _variant("i32", "i32", 1),
    _variant("i32", "i32", 0),
    _variant("i32", "i32", -1),
    _variant("i16", "i16", 1),
    _variant("i8", "i8", 1),
    _variant("fp32", "bf16", 1),
    _variant("fp32", "bf16", 0),
    _variant("fp32", "fp16", 1),
    _variant("bf16", "fp32", 1),
    Variant(
        kernel=mix_blocks,
        label="digest",
        signature={"hashes": "*i64", "totals": "*i64", "blocks": "i64"},
        constexprs={"BLOCK": BLOCK_HASHES},
        aligned=("hashes", "totals"),
        load=0,
        store=0,
    ),
)


def flatten(tensors: Sequence[Tensor], layout: Sequence[FlatEntry], buffer: Tensor) -> int:
    """Writes the tensors to `buffer` (uint8), zeros between them; returns the digest."""
    return _copy(buffer, [tensor.contiguous() for tensor in tensors], layout, 1)


def unflatten(
    buffer: Tensor, tensors: Sequence[Tensor], layout: Sequence[FlatEntry], expect: int | None
) -> int:
    """Writes `buffer` to the tensors; returns its digest, whatever `expect` is: one pass."""
    dense = [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]
    digest = _copy(buffer, dense, layout, 0)
    for tensor, copy in zip(tensors, dense, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)
    return digest


def digest(octets: Tensor) -> int:
    """The digest of uint8 [N]."""
    entry = FlatEntry(
        name="", shape=tuple(octets.shape), dtype=torch.uint8, offset=0, nbytes=octets.numel()
    )
    return _copy(octets, [octets], [entry], -1)


def _copy(buffer: Tensor, tensors: Sequence[Tensor], layout: Sequence[FlatEntry], mode: int) -> int:
    """One launch for every pair of element types; mode as `TO_FLAT`."""
    groups: dict[tuple[str, str], list[Int64s]] = {}
    for tensor, entry in zip(tensors, layout, strict=True):
        if entry.nbytes:
            kinds = _kinds(tensor, entry, buffer)
            groups.setdefault(kinds, []).append(_pieces(tensor, entry, buffer, *kinds))
    nbytes = buffer.numel()
    hashes = torch.zeros((-(-nbytes // BLOCK_BYTES), 2), dtype=torch.int64, device=buffer.device)
    keys = upload(KEYS.view(np.int64), buffer.device)
    for (tensor_kind, flat_kind), pieces in groups.items():
        table = np.concatenate(pieces)
        units = []
        for column, kind in ((0, tensor_kind), (1, flat_kind)):
            whole = not (table[:, column] % ALIGN_UNIT).any()
            units.append(ALIGN_UNIT if whole else TRITON[kind].primitive_bitwidth // 8)
            table[:, column] //= units[-1]
        flat_type = TRITON[flat_kind]
        launch(flat_copy, (table.shape[0],), buffer.device,
            upload(table, buffer.device), keys, hashes, TENSOR=TRITON[tensor_kind], FLAT=flat_type,
            TO_FLAT=mode, TENSOR_UNIT=units[0], FLAT_UNIT=units[1],
            BLOCK=BLOCK_BYTES * 8 // flat_type.primitive_bitwidth, num_warps=_warps(flat_kind),
        )  # fmt: skip
    return _finish(hashes, nbytes)


def _finish(hashes: Tensor, nbytes: int) -> int:
    totals = torch.zeros(2, dtype=torch.int64, device=hashes.device)
    if hashes.shape[0]:
        launch(
            mix_blocks,
            (triton.cdiv(hashes.shape[0], BLOCK_HASHES),),
            hashes.device,
            hashes,
            totals,
            hashes.shape[0],
            BLOCK=BLOCK_HASHES,
            num_warps=WARPS,
        )
    lanes = [
        int(mix(np.array([(total + nbytes * odd) & MASK], dtype=np.uint64))[0])
        for total, odd in zip(totals.tolist(), ODD, strict=True)
    ]
    return lanes[0] << 64 | lanes[1]


def _kinds(tensor: Tensor, entry: FlatEntry, buffer: Tensor) -> tuple[str, str]:
    """Element types of the tensor and of the buffer; integers of the widest unit without a cast."""
    if tensor.dtype != entry.dtype and entry.dtype != torch.uint8:
        return FLOATS[tensor.dtype], FLOATS[entry.dtype]
    unit = math.gcd(4, entry.nbytes, tensor.data_ptr(), buffer.data_ptr())
    kind = {4: "i32", 2: "i16", 1: "i8"}[unit]
    return kind, kind


def _pieces(
    tensor: Tensor, entry: FlatEntry, buffer: Tensor, tensor_kind: str, flat_kind: str
) -> Int64s:
    """Items [n, 6] of one tensor, cut where the flat buffer's blocks end; addresses in bytes."""
    size, flat_size = (TRITON[kind].primitive_bitwidth // 8 for kind in (tensor_kind, flat_kind))
    last = entry.offset + entry.nbytes
    blocks = np.arange(entry.offset // BLOCK_BYTES, -(-last // BLOCK_BYTES), dtype=np.int64)
    begin = np.maximum(blocks * BLOCK_BYTES, entry.offset)
    end = np.minimum((blocks + 1) * BLOCK_BYTES, last)
    items = np.empty((blocks.size, 6), dtype=np.int64)
    items[:, 0] = tensor.data_ptr() + (begin - entry.offset) // flat_size * size
    items[:, 1] = buffer.data_ptr() + begin
    items[:, 2] = (end - begin) // flat_size
    items[:, 3] = (-(-end // ALIGN) * ALIGN - begin) // flat_size
    items[:, 4] = (begin % BLOCK_BYTES) // 16
    items[:, 5] = blocks
    return items
