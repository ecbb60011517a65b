"""Values that are frozen for whoever reads and checks the code, and cheap to make.

A frozen dataclass writes each of its fields through `object.__setattr__`; the orchestrator makes
some messages for each record, and did little else with a fifth of its time. What is frozen here is
still declared so, and mypy refuses an assignment; only the check while running is left out.
"""

from dataclasses import MISSING, field, fields, make_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def light(cls: type[T]) -> type[T]:
    """Above `@dataclass(frozen=True, slots=True, kw_only=True)`: makes instances at half the cost.

    Defaults must be values; there is no `__post_init__`. Raises TypeError otherwise.
    """
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__} has a __post_init__")
    parts: list[tuple[str, Any, Any]] = []
    for part in fields(cls):  # type: ignore[arg-type]  # of a dataclass, or it raises TypeError
        if part.default_factory is not MISSING:
            raise TypeError(f"{cls.__name__}.{part.name} has a default factory")
        parts.append((part.name, Any, field(default=part.default)))
    plain = make_dataclass(cls.__name__, parts, kw_only=True)
    cls.__init__ = plain.__init__  # type: ignore[misc, method-assign]  # the same
    for guard in ("__setattr__", "__delattr__"):
        delattr(cls, guard)
    return cls
