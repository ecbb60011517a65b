"""Plain data: all that a graph may hold beside names."""

import math
from collections.abc import Mapping
from typing import Any

from flowgraph.dsl.location import refuse


def plain(value: Any, where: str) -> Any:
    """`value` as plain data: lists become tuples, mappings dicts, int and float subclasses plain.

    where: what the value is, for the message. Raises GraphError at the user's line for anything
    that is neither None, bool, int, float, str nor a list, tuple or str-keyed mapping of those.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and math.isnan(value):
        raise refuse(f"{where}: a parameter cannot be nan", hint="None for 'not given'")
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple):
        return tuple(plain(item, f"{where}[{place}]") for place, item in enumerate(value))
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise refuse(
        f"{where}: parameters are plain data (None, bool, int, float, str, lists, mappings), "
        f"got {type(value).__name__}",
        hint=_instead(value),
    )


def plain_parameters(params: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The keyword parameters of a user's function as plain data."""
    return {name: plain(value, f"{role}: parameter '{name}'") for name, value in params.items()}


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise refuse(f"{where}: keys are str, got {key!r}", hint=f"{str(key)!r}")
    return str(key)


def _instead(value: Any) -> str:
    if hasattr(value, "__fspath__"):
        return "str(path)"
    if callable(value):
        return "pass what the function needs to choose by itself, such as a name"
    if hasattr(value, "tolist"):
        return "value.tolist(), or make it inside the function"
    return "pass what the function needs to make it"
