"""What was refused, by reason: counted for the run's outcome, never an end of the run."""

from collections import Counter
from typing import Any

MOST_SHOWN = 20
"""Descriptions kept: enough to find the culprit; a flood must not fill memory or disk."""


class Refusals:
    """Counts by reason, and the first few in words."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: list[str] = []

    def add(self, reason: str, what: str) -> None:
        """reason: one of a few fixed words. what: this one, in at most 200 characters."""
        self._counts[reason] += 1
        if len(self._first) < MOST_SHOWN:
            self._first.append(f"{reason}: {what[:200]}")

    @property
    def total(self) -> int:
        return self._counts.total()

    def of(self, reason: str) -> int:
        return self._counts[reason]

    def to_plain(self) -> dict[str, Any]:
        """For outcome.json: `total`, `by_reason`, `first`."""
        return {
            "total": self.total,
            "by_reason": dict(sorted(self._counts.items())),
            "first": list(self._first),
        }
