"""Who owns which bytes of a segment: first fit with coalescing. Arithmetic only, no memory."""

from bisect import bisect_left

from flowgraph.runtime.batch import aligned


class Arena:
    """Blocks of `size` bytes, aligned to 64. Law: free bytes + bytes of taken blocks == size.

    First fit from the low end keeps reusing the same pages, which are then already in memory.
    """

    def __init__(self, size: int) -> None:
        if size <= 0 or aligned(size) != size:
            raise ValueError(f"an arena's size is a positive multiple of 64, got {size}")
        self.size = size
        self.used = 0
        self.high_water = 0
        self._starts = [0]  # of the free runs, rising; no two runs touch
        self._sizes = [size]
        self._taken: dict[int, int] = {}

    def take(self, nbytes: int) -> int | None:
        """Start of a block of at least `nbytes`, or None when no run is long enough now."""
        want = aligned(max(nbytes, 1))
        at = next((i for i, size in enumerate(self._sizes) if size >= want), None)
        if at is None:
            return None
        start, size = self._starts[at], self._sizes[at]
        if size == want:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at], self._sizes[at] = start + want, size - want
        self._taken[start] = want
        self.used += want
        self.high_water = max(self.high_water, start + want)
        return start

    def give(self, start: int) -> None:
        """Frees the block that `take` answered with `start`. Raises KeyError for any other."""
        size = self._taken.pop(start)
        self.used -= size
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and start + size == self._starts[at]:
            size += self._sizes[at]
            del self._starts[at], self._sizes[at]
        if at > 0 and self._starts[at - 1] + self._sizes[at - 1] == start:
            self._sizes[at - 1] += size
        else:
            self._starts.insert(at, start)
            self._sizes.insert(at, size)

    @property
    def largest(self) -> int:
        """Bytes of the longest free run."""
        return max(self._sizes, default=0)
