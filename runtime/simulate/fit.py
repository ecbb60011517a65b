"""Seconds as a sum of parts: non-negative least squares for a handful of parts."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np


def fit_parts(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[float, ...]:
    """Coefficients [parts], none negative, with seconds ≈ rows @ coefficients.

    rows: [n, parts], how much of each part a measurement had. The best of all subsets of parts
    (there are few) by squares weighted with 1 / seconds, since timing noise grows with the time;
    then scaled such that the sum of all measurements is met: totals are what predictions are for.
    No measurements, or only ones that took no time, give zeros.
    """
    x = np.asarray(rows, dtype=np.float64)
    y = np.asarray(seconds, dtype=np.float64)
    if not len(y) or y.sum() <= 0.0:
        return (0.0,) * (x.shape[1] if x.ndim == 2 else 0)
    weight = 1.0 / np.sqrt(np.maximum(y, y.mean() * 1e-3))
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    best, least = np.zeros(x.shape[1]), np.inf
    # From the last part on: where the data cannot tell (all items alike), amounts explain the time.
    parts = range(x.shape[1] - 1, -1, -1)
    for size in range(1, x.shape[1] + 1):
        for chosen in combinations(parts, size):
            part = x[:, chosen] / scale[list(chosen)]
            found = np.linalg.lstsq(part * weight[:, None], y * weight, rcond=None)[0]
            error = float(np.square((part @ found - y) * weight).sum())
            if (found >= 0.0).all() and error < least * (1 - 1e-9):
                least, best = error, np.zeros(x.shape[1])
                best[list(chosen)] = found / scale[list(chosen)]
    predicted = float((x @ best).sum())
    if predicted > 0.0:
        best *= y.sum() / predicted
    return tuple(float(value) for value in best)
