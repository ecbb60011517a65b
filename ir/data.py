"""Plain data: what attributes, parameters and files hold.

None, bool, int, float, str, tuples (lists in files), and dicts with str keys.
"""

from collections.abc import Mapping
from typing import Any

DEEPEST = 32
"""Levels of nesting in plain data; more is refused, so that reading ends on any input."""

Path = tuple[str | int, ...]


class PlainError(Exception):
    """Plain data do not have the shape of the class. `path` leads to the place."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.path)
        return f"{place.lstrip('.')}: {self.message}" if place else self.message

    def under(self, step: str | int) -> "PlainError":
        """The same fault, seen from one level further up."""
        return PlainError((step, *self.path), self.message)


def plain_data(value: Any, depth: int = 0) -> Any:
    """`value` with lists as tuples. Raises PlainError when it is not plain data."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth >= DEEPEST:
        raise PlainError((), f"nested more than {DEEPEST} levels deep")
    if isinstance(value, list | tuple):
        return tuple(plain_data(item, depth + 1) for item in value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise PlainError((), f"expects text as key, got {key!r}")
        return {key: plain_data(item, depth + 1) for key, item in value.items()}
    raise PlainError((), f"expects plain data, got {type(value).__name__}")
