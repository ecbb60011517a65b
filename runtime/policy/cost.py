"""What a sample costs a module: linear, quadratic and constant parts, fitted from timings."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flowgraph.runtime.policy.packs import Packs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """cost(l) = linear * l + quadratic * l**2 + constant, for one sample of l tokens.

    The unit is whatever the fit's was (seconds, FLOP); dealing only compares costs with one
    another. Attention inside a pack is per segment, so costs add up over the samples of a pack.
    """

    linear: float
    quadratic: float = 0.0
    constant: float = 0.0

    def of(self, lengths: ArrayLike) -> Floats:
        """Cost of each sample. lengths: int[n], tokens. Returns float64[n]."""
        tokens = np.asarray(lengths, dtype=np.float64)
        return self.linear * tokens + self.quadratic * (tokens * tokens) + self.constant

    def of_packs(self, packs: Packs, lengths: ArrayLike | None = None) -> Floats:
        """Cost of each pack. Returns float64[packs].

        lengths: int[pieces] in pack order, where another module's counts are meant (visual tokens:
        `packs.second`); by default the packs' own token counts. A piece of length 0 costs nothing,
        not even the constant: that module is not called for it.
        """
        counts = packs.lengths if lengths is None else np.asarray(lengths, dtype=np.int64)
        if counts.shape != packs.lengths.shape:
            raise ValueError(
                f"expects {packs.lengths.size} lengths in pack order, got {counts.shape}"
            )
        # Integer sums first: they are exact, so the plan is the same on every machine.
        total = packs.sums(counts)
        squares = packs.sums(counts * counts)
        called = packs.sums((counts > 0).astype(np.int64))
        return (
            self.linear * total.astype(np.float64)
            + self.quadratic * squares.astype(np.float64)
            + self.constant * called.astype(np.float64)
        )

    @classmethod
    def fit(cls, lengths: ArrayLike, seconds: ArrayLike) -> "Cost":
        """Least squares of the relative error with no negative coefficient.

        lengths: int[n] tokens, seconds: float[n] > 0 measured. A negative coefficient would make a
        longer sample cheaper somewhere; such terms are left out, the best remaining subset wins.
        Relative, because timing noise grows with the time. Fewer distinct lengths than terms leave
        terms out as well. Raises ValueError on empty, mismatched, negative or non-finite input.
        """
        x = np.asarray(lengths, dtype=np.float64)
        y = np.asarray(seconds, dtype=np.float64)
        if x.ndim != 1 or x.shape != y.shape or not x.size:
            raise ValueError(f"expects two equally long vectors, got {x.shape} and {y.shape}")
        if not (np.isfinite(x).all() and np.isfinite(y).all() and (x >= 0).all() and (y > 0).all()):
            raise ValueError("expects finite lengths >= 0 and finite seconds > 0")
        scale = max(float(x.max()), 1.0)
        unit = x / scale
        terms = np.stack([unit, unit * unit, np.ones_like(unit)], axis=1) / y[:, None]
        best = _best_subset(terms, most=np.unique(x).size)
        return cls(
            linear=float(best[0]) / scale,
            quadratic=float(best[1]) / scale**2,
            constant=float(best[2]),
        )


def _best_subset(terms: Floats, *, most: int) -> Floats:
    """Non-negative coefficients float64[3] that bring terms[n, 3] @ coefficients closest to 1."""
    best, least = np.zeros(3), np.inf
    for size in range(1, min(3, most) + 1):
        for columns in combinations(range(3), size):
            part = terms[:, columns]
            solution = np.linalg.lstsq(part, np.ones(len(part)), rcond=None)[0]
            error = float(np.square(part @ solution - 1.0).sum())
            # A further term must earn its place by more than rounding.
            if (solution >= 0).all() and error < least * (1 - 1e-9) - 1e-15:
                best, least = np.zeros(3), error
                best[list(columns)] = solution
    return best
