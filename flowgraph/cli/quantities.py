"""Amounts with their units, as a person writes them in a cluster file: `80 GiB`, `3.35 TB/s`."""

import re
from typing import Any

_PREFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_AMOUNT = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*(?P<prefix>(?:[KMGT]i|[kMGTP])?)"
    r"(?P<unit>[A-Za-z/]*)"
)

EXAMPLES = {"B": "80 GiB", "B/s": "64 GB/s", "FLOP/s": "312 TFLOP/s"}
"""What an amount of each unit looks like."""


def amount(value: Any, unit: str) -> float:
    """The amount in `unit` (`B`, `B/s`, `FLOP/s`). A bare number is in it already.

    >>> amount("1.5 TB/s", "B/s")
    1500000000000.0

    Raises ValueError for text that is no amount of that unit, and for a negative one.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(value)
        return float(value)
    match = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match["unit"] not in (unit, ""):
        raise ValueError(value)
    if match["prefix"] and not match["unit"]:
        raise ValueError(value)
    return float(match["number"]) * _PREFIXES[match["prefix"]]
