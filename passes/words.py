"""Counts in messages."""


def counted(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
