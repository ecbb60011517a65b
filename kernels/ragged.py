"""Ragged fields: rows of many samples behind one another, with the offsets that part them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """One field of B samples: sample `b` owns `values[offsets[b]:offsets[b + 1]]`.

    values: [T, ...], any dtype and device.
    offsets: int64 [B + 1] on the host, non-decreasing, `0 <= offsets[0]`, `offsets[-1] <= T` (a
    slice of a larger buffer is legal, as in Arrow). They stay on the host because layouts are
    worked out there: reading them back from a device would make every pack wait for it.

    Raises ValueError when offsets are not that.
    """

    values: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        check_offsets(self.offsets, self.values.shape[0] if self.values.dim() else None)

    @classmethod
    def of(cls, rows: Sequence[Tensor]) -> Ragged:
        """Concatenates the rows ([t_b, ...] each, at least one row) into one field."""
        if not rows:
            raise ValueError("Ragged.of needs at least one row to know the dtype and shape")
        lengths = torch.tensor([0, *(row.shape[0] for row in rows)], dtype=torch.int64)
        return cls(torch.cat(list(rows)), lengths.cumsum(0))

    @property
    def samples(self) -> int:
        """The number of samples, B."""
        return self.offsets.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """Rows of each sample: int64 [B] on the host."""
        return self.offsets[1:] - self.offsets[:-1]

    def row(self, sample: int) -> Tensor:
        """The values of one sample, [t, ...], a view."""
        if not 0 <= sample < self.samples:
            raise ValueError(f"sample {sample} of a field of {self.samples} samples")
        return self.values[int(self.offsets[sample]) : int(self.offsets[sample + 1])]


def check_offsets(offsets: Tensor, rows: int | None) -> None:
    """ValueError unless `offsets` is int64 [B + 1] on the host, rising from >= 0 to <= `rows`."""
    if rows is None:
        raise ValueError("values: expects [T, ...], got a scalar")
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or offsets.shape[0] < 1:
        raise ValueError(
            f"offsets: expects int64 [B + 1], got {offsets.dtype} {list(offsets.shape)}"
        )
    if offsets.device.type != "cpu":
        raise ValueError(f"offsets: expects a host tensor, got one on {offsets.device}")
    table = offsets.detach().numpy()
    falls = table[1:] < table[:-1]
    if falls.any():
        sample = int(falls.argmax())
        raise ValueError(f"offsets: sample {sample} has {table[sample + 1] - table[sample]} rows")
    if table[0] < 0 or table[-1] > rows:
        raise ValueError(f"offsets: expects to lie within 0..{rows}, got {table[0]}..{table[-1]}")
