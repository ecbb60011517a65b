"""Sample ids as people read them."""

from collections.abc import Iterable


def ranges(samples: Iterable[int]) -> str:
    """`[3, 4, 5, 9]` → "3-5, 9"."""
    spans: list[list[int]] = []
    for sample in sorted(set(samples)):
        if spans and spans[-1][1] + 1 == sample:
            spans[-1][1] = sample
        else:
            spans.append([sample, sample])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
