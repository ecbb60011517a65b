"""flatten, unflatten_, digest128: many parameters to one buffer and back, with a digest.

Bytes moved on a device: each tensor read once, the buffer written once; the digest is taken in the
same pass from the values as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flowgraph.kernels.backend import path

ALIGN = 64
CASTS = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatEntry:
    """One tensor's place in a flat buffer. offset and nbytes are in bytes, offset % 64 == 0."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int


def flat_layout(
    tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> tuple[FlatEntry, ...]:
    """Where each tensor goes: in the mapping's order, every one at a multiple of 64 bytes.

    dtype: what floating tensors become in the buffer (fp32, bf16 or fp16); None keeps their own.
    Integers and bools keep theirs. Raises ValueError on another dtype.
    """
    if dtype is not None and dtype not in CASTS:
        raise ValueError(f"dtype: expects one of {[str(cast) for cast in CASTS]}, got {dtype}")
    entries, offset = [], 0
    for name, tensor in tensors.items():
        to = dtype if dtype is not None and tensor.dtype in CASTS else tensor.dtype
        nbytes = tensor.numel() * to.itemsize
        entries.append(
            FlatEntry(name=name, shape=tuple(tensor.shape), dtype=to, offset=offset, nbytes=nbytes)
        )
        offset += -(-nbytes // ALIGN) * ALIGN
    return tuple(entries)


def flat_nbytes(layout: tuple[FlatEntry, ...]) -> int:
    """Bytes of the buffer: the last entry's end, rounded up to 64."""
    if not layout:
        return 0
    return layout[-1].offset + -(-layout[-1].nbytes // ALIGN) * ALIGN


def flatten(
    tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None, *, out: Tensor | None = None
) -> tuple[Tensor, int]:
    """Copies every tensor into one buffer, and digests it: (uint8 [bytes], 0 <= digest < 2^128).

    tensors: name -> any shape and strides, one device. dtype: see `flat_layout`.
    out: uint8 of exactly the right size to write to. The bytes between entries are 0.
    Values are copied, not tracked by autograd. ValueError on mixed devices or a wrong `out`.
    """
    layout = flat_layout(tensors, dtype)
    device = _one_device(tensors)
    buffer = _buffer(flat_nbytes(layout), device, out)
    with torch.no_grad():
        digest: int = path("flat", buffer).flatten(list(tensors.values()), layout, buffer)
    return buffer, digest


def unflatten_(
    buffer: Tensor,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype | None = None,
    *,
    expect: int | None = None,
) -> int:
    """Copies a flat buffer back into the tensors, in place; returns the buffer's digest.

    tensors, dtype: the same names, shapes and order, and the same `dtype`, as `flatten` had.
    expect: the digest that the buffer must have; it is checked before any tensor is touched on
    the CPU, and after the one pass on a device. ValueError when it differs.
    """
    layout = flat_layout(tensors, dtype)
    _check_buffer(buffer, flat_nbytes(layout), _one_device(tensors) if tensors else buffer.device)
    with torch.no_grad():
        digest: int = path("flat", buffer).unflatten(buffer, list(tensors.values()), layout, expect)
    if expect is not None and digest != expect:
        raise ValueError(f"digest of the flat buffer: expects {expect:032x}, got {digest:032x}")
    return digest


def digest128(buffer: Tensor) -> int:
    """The digest of a contiguous tensor's bytes, 0 <= d < 2^128 (see `flowgraph.kernels.digest`).

    The same on every device, independent of dtype and shape, not cryptographic.
    """
    if not buffer.is_contiguous():
        raise ValueError("digest128 expects a contiguous tensor")
    octets = buffer.detach().reshape(-1).view(torch.uint8)
    digest: int = path("flat", octets).digest(octets)
    return digest


def _one_device(tensors: Mapping[str, Tensor]) -> torch.device:
    device: torch.device | None = None
    for name, tensor in tensors.items():
        device = device or tensor.device
        if tensor.device != device:
            raise ValueError(f"tensor {name!r}: expects {device}, got {tensor.device}")
    return device or torch.device("cpu")


def _buffer(nbytes: int, device: torch.device, out: Tensor | None) -> Tensor:
    if out is None:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    _check_buffer(out, nbytes, device)
    return out


def _check_buffer(buffer: Tensor, nbytes: int, device: torch.device) -> None:
    fits = buffer.dtype == torch.uint8 and tuple(buffer.shape) == (nbytes,)
    if not fits or not buffer.is_contiguous() or buffer.device != device:
        raise ValueError(
            f"buffer: expects contiguous uint8 [{nbytes}] on {device}, "
            f"got {buffer.dtype} {list(buffer.shape)} on {buffer.device}"
        )
    if buffer.data_ptr() % ALIGN:
        raise ValueError(f"buffer: expects an address that is a multiple of {ALIGN}")
