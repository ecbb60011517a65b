"""What is moved: the same rows for us and for the peers. numpy only."""

import numpy as np
from numpy.typing import NDArray

ROWS = 256
FIELDS = (
    "tokens",
    "positions",
    "loss_mask",
    "logprobs",
    "reference_logprobs",
    "values",
    "advantages",
    "returns",
    "versions",
)
DTYPES = ("int32", "int32", *["float32"] * 6, "int32")
MEAN = 1024
"""Entries of a row's field on average: 256 x 9 x 4 KiB are 9 MiB."""

DENSE_MIB = 18


def ragged_rows() -> list[dict[str, NDArray[np.generic]]]:
    """256 rows of nine arrays, as long as each other within a row: 512 to 1536 entries."""
    rng = np.random.default_rng(0)
    rows = []
    for length in rng.integers(MEAN // 2, MEAN + MEAN // 2, ROWS):
        row = {}
        for name, dtype in zip(FIELDS, DTYPES, strict=True):
            row[name] = rng.integers(0, 1000, length).astype(dtype)
        rows.append(row)
    return rows


def dense() -> NDArray[np.float32]:
    """One array of 18 MiB, float32 [256, 18432]."""
    width = DENSE_MIB * (1 << 20) // 4 // ROWS
    return np.random.default_rng(1).standard_normal((ROWS, width), np.float32)
