"""Numbers that were seen, and what a costs file says of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Samples:
    """Repeated measurements of one thing."""

    seen: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.seen.append(value)

    def measure(self) -> dict[str, float] | None:
        """Mean, relative standard deviation and count; None of nothing, and of a mean of 0."""
        if not self.seen or (mean := math.fsum(self.seen) / len(self.seen)) <= 0:
            return None
        squares = math.fsum((value - mean) ** 2 for value in self.seen)
        spread = math.sqrt(squares / max(1, len(self.seen) - 1)) / mean
        return {"value": mean, "spread": spread, "count": len(self.seen)}


@dataclass(slots=True)
class Line:
    """Seconds against what was worked on: `seconds = fixed + each . amounts`, none below 0."""

    names: tuple[str, ...]
    seconds: list[float] = field(default_factory=list)
    amounts: list[tuple[float, ...]] = field(default_factory=list)

    def add(self, seconds: float, *amounts: float) -> None:
        self.seconds.append(seconds)
        self.amounts.append(amounts)

    def measures(self) -> dict[str, dict[str, float]]:
        """By name, least squares of the relative error, with the residuals' spread.

        Terms that come out below 0 are 0, so that no estimate takes their place, and the rest is
        fitted again. Empty when nothing is left.
        """
        import numpy as np

        if not self.seconds:
            return {}
        left = list(range(len(self.names)))
        weight = 1.0 / np.asarray(self.seconds)
        table = np.asarray(self.amounts) * weight[:, None]
        while left:
            found, *_ = np.linalg.lstsq(table[:, left], np.ones(len(weight)), rcond=None)
            if (found > 0).all():
                break
            left = [i for i, value in zip(left, found, strict=True) if value > 0]
        else:
            return {}
        residuals = table[:, left] @ found - 1.0
        spread = float(np.sqrt(np.mean(residuals**2)))
        values = {self.names[i]: float(value) for i, value in zip(left, found, strict=True)}
        return {
            name: {"value": values.get(name, 0.0), "spread": spread, "count": len(weight)}
            for name in self.names
        }


def measured(found: Sequence[tuple[str, Samples]]) -> dict[str, dict[str, float]]:
    """Those that were seen, by name."""
    measures = ((name, samples.measure()) for name, samples in found)
    return {name: measure for name, measure in measures if measure is not None}
