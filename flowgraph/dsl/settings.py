"""Settings of a `build` function: from the text of `--set key=value` to typed values."""

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from flowgraph.dsl.annotations import spelled, strip
from flowgraph.dsl.functions import AnyFunction
from flowgraph.dsl.suggest import choices
from flowgraph.ir.errors import ConfigurationError, GraphError
from flowgraph.ir.location import Location

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")
_NONE = ("none", "null")
_SERIES = (list, tuple, Sequence)


def typed_settings(
    build: AnyFunction, settings: Mapping[str, str], *, at: Location
) -> dict[str, Any]:
    """Each setting as the type that `build` annotates it with.

    int, float, bool, str, Path, Literal, unions of those and None, and lists, written `1,2,3`. A
    parameter without an annotation takes the type of its default. Raises ConfigurationError, with
    the nearest valid name, for a setting that `build` does not take, cannot read, or misses;
    GraphError when `build` itself takes what no text can give.
    """
    parameters = inspect.signature(build).parameters
    for parameter in parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise GraphError(
                f"{build.__name__}(): settings are named parameters, got '{parameter}'", at=at
            )
    try:
        hints = typing.get_type_hints(build)
    except NameError as error:
        raise GraphError(f"{build.__name__}(): an annotation cannot be read: {error}", at=at) from (
            error
        )
    for name in settings:
        if name not in parameters:
            raise ConfigurationError(
                f"{build.__name__}() has no setting '{name}'",
                at=at,
                hint=choices(name, parameters, what="setting"),
            )
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in settings:
            raise ConfigurationError(
                f"{build.__name__}() needs the setting '{name}'", at=at, hint=f"--set {name}=..."
            )
    kinds = {name: hints.get(name, _kind_of_default(p)) for name, p in parameters.items()}
    return {name: _read(text, kinds[name], name, at) for name, text in settings.items()}


def _kind_of_default(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    return str if default is None or default is parameter.empty else type(default)


def _read(text: str, kind: Any, name: str, at: Location) -> Any:
    """One setting. Raises ConfigurationError that states what was expected."""
    try:
        return _parsed(text, kind)
    except ValueError:
        raise ConfigurationError(
            f"setting '{name}': expects {_spelled(kind)}, got {text!r}",
            at=at,
            hint=f"--set {name}={_example(kind)}",
        ) from None
    except TypeError:
        raise GraphError(
            f"setting '{name}': no text can be read as {_spelled(kind)}",
            at=at,
            hint="int, float, bool, str, Path, Literal, | None, or lists of those",
        ) from None


def _parsed(text: str, kind: Any) -> Any:
    """`text` as `kind`. ValueError for other text, TypeError for a kind that is not supported."""
    kind, _ = strip(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is bool:
        return _one_of(text.lower(), {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False)})
    if kind in (int, float, str, Path):
        return kind(text)
    if kind is type(None):
        return _one_of(text.lower(), dict.fromkeys(_NONE))
    if origin is Literal:
        return _one_of(text, {str(value): value for value in arguments})
    if origin in (Union, types.UnionType):
        return _first_that_reads(text, arguments)
    if origin in _SERIES:
        parts = [part.strip() for part in text.split(",")] if text.strip() else []
        series = tuple if origin is tuple else list
        return series(_parsed(part, arguments[0]) for part in parts)
    raise TypeError(kind)


def _first_that_reads(text: str, kinds: Sequence[Any]) -> Any:
    """The value of the first kind that can be; None first, since any text is a str."""
    for kind in sorted(kinds, key=lambda kind: kind is not type(None)):
        try:
            return _parsed(text, kind)
        except ValueError:
            continue
    raise ValueError(text)


def _one_of(text: str, values: Mapping[str, Any]) -> Any:
    if text not in values:
        raise ValueError(text)
    return values[text]


def _spelled(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, typing.get_args(kind)))}"
    return spelled(kind)


def _example(kind: Any) -> str:
    kind, _ = strip(kind)
    if typing.get_origin(kind) in _SERIES:
        return "1,2,3"
    if typing.get_origin(kind) is Literal:
        return str(typing.get_args(kind)[0])
    return {int: "1", float: "0.1", bool: "true", Path: "folder"}.get(kind, "...")
