"""Quantities with their unit in the name, and what a graph expects of an agent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowgraph.dsl.location import refuse
from flowgraph.dsl.suggest import choices
from flowgraph.ir.types import RecordType


@dataclass(frozen=True, slots=True)
class Tokens:
    """A number of tokens; made by `tokens`."""

    count: int


def tokens(count: int) -> Tokens:
    """A number of tokens, for parameters where rows could be meant: `micro_batch=fg.tokens(4096)`.

    Raises GraphError at the user's line for a count below 1.
    """
    return Tokens(whole(count, "tokens", least=1))


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution by its mean and its 95th percentile; made by `spread`."""

    mean: float
    p95: float


def spread(mean: float, *, p95: float) -> Spread:
    """An expectation with a tail: `response=fg.spread(300, p95=2000)`."""
    if not 0 < mean <= p95 < math.inf:
        raise refuse(f"spread: expects 0 < mean <= p95, got mean={mean!r}, p95={p95!r}")
    return Spread(float(mean), float(p95))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What a graph expects of an agent, a trajectory; only planning reads it, results do not.

    mean: generate calls a trajectory. prompt, response: tokens a call. Each is a number or a
    `spread`. Profiles replace them.

    >>> fg.Calls(mean=1.4, prompt=8, response=fg.spread(3, p95=6))
    """

    mean: float | Spread = 1.0
    prompt: float | Spread | None = None
    response: float | Spread | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "prompt", "response"):
            value = getattr(self, name)
            if isinstance(value, Spread) or value is None:
                continue
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise refuse(f"Calls: {name} must be a number above 0, got {value!r}")

    def data(self) -> dict[str, Any]:
        """As plain data: {calls, prompt, response}, spreads as {mean, p95}."""
        given = {"calls": self.mean, "prompt": self.prompt, "response": self.response}
        return {name: _datum(value) for name, value in given.items() if value is not None}


def expected_lengths(expect: Mapping[str, Any], type: RecordType, role: str) -> dict[str, Any]:
    """`{"expect": ...}` of a source as plain data, or nothing where nothing is expected.

    Raises GraphError at the user's line for a dim that its records do not have, and for no length.
    """
    dims = tuple(dict.fromkeys(dim for field in type.fields for dim in field.ragged))
    for dim, value in expect.items():
        if dim not in dims:
            raise refuse(
                f"{role}: expect: no field has a ragged dim '{dim}'",
                hint=choices(dim, dims, what="ragged dim"),
            )
        if not isinstance(value, Spread):
            real(value, f"{role}: expect: {dim} a sample", above=0)
    found = {dim: _datum(value) for dim, value in expect.items()}
    return {"expect": found} if found else {}


def whole(value: Any, what: str, *, least: int) -> int:
    """`value` as an int of at least `least`. Raises GraphError at the user's line."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise refuse(f"{what}: expects a whole number of at least {least}, got {value!r}")
    return int(value)


def real(
    value: Any,
    what: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """`value` as a finite float within the bounds. Raises GraphError at the user's line."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and above < value < below and least <= value <= most:
        return float(value)
    bounds = {"above": above, "of at least": least, "below": below, "of at most": most}
    stated = [f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound)]
    raise refuse(f"{what}: expects a number {' and '.join(stated)}, got {value!r}")


def one_of(value: Any, what: str, options: tuple[str, ...]) -> str:
    """`value` if it is one of the options. Raises GraphError at the user's line."""
    if value not in options:
        raise refuse(f"{what}: expects one of {', '.join(options)}, got {value!r}")
    return str(value)


def _datum(value: float | Spread) -> Any:
    return {"mean": value.mean, "p95": value.p95} if isinstance(value, Spread) else value
