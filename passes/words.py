"""Counts, times, sizes and lists in messages and explanations."""

from collections.abc import Sequence

ROUNDS_UP = 0.9995
"""Of a unit: what is as much shows as 1 of it, not as 1,000 of the next smaller."""


def counted(count: int, noun: str, several: str = "") -> str:
    """`1 worker`, `2 workers`; several: the plural where it is not the noun with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {several or noun + 's'}"


def seconds_text(seconds: float) -> str:
    """`2.5 s`, `128 ms`, `3.2 µs`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size * ROUNDS_UP:
            return f"{figure(seconds / size)} {unit}"
    return f"{figure(seconds / 1e-6)} µs" if seconds else "0 s"


def size_text(count: float) -> str:
    """`1.5 GiB`; `-` for nothing."""
    if not count:
        return "-"
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{figure(count / size)} {unit}"
    return f"{count:g} B"


def figure(value: float) -> str:
    """Three figures, and never a power of ten."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def ranges(numbers: Sequence[int]) -> str:
    """`0-3,7` of sorted numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
