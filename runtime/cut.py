"""A step's samples in units of one size, without an object for each unit."""

from collections.abc import Iterator, Sequence
from typing import overload

Unit = tuple[int, ...]


class Cut(Sequence[Unit]):
    """Unit `u` is `samples[u * size : (u + 1) * size]`; the last may be smaller.

    A million units are the samples alone, which are a range as a rule.
    """

    __slots__ = ("_count", "_samples", "_size")

    def __init__(self, samples: Sequence[int], size: int) -> None:
        self._samples = samples
        self._size = size
        self._count = -(-len(samples) // size)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Unit: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Unit, ...]: ...

    def __getitem__(self, at: int | slice) -> Unit | tuple[Unit, ...]:
        if isinstance(at, slice):
            return tuple(self[unit] for unit in range(*at.indices(self._count)))
        if not 0 <= at < self._count:
            raise IndexError(f"unit {at} of {self._count}")
        size = self._size
        if size == 1:
            return (self._samples[at],)
        return tuple(self._samples[at * size : (at + 1) * size])

    def __iter__(self) -> Iterator[Unit]:
        return map(self.__getitem__, range(self._count))
