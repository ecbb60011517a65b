"""Parameters of a stage against the signature of the user's function."""

import inspect
from collections.abc import Collection, Mapping
from inspect import Parameter
from typing import Any

from flowgraph.dsl.functions import AnyFunction, origin
from flowgraph.dsl.location import refuse
from flowgraph.dsl.suggest import choices

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def check_parameters(
    function: AnyFunction,
    params: Mapping[str, Any],
    *,
    role: str,
    given: tuple[str, ...] = (),
    reserved: Collection[str] = (),
) -> None:
    """Check that `function(*given, **params)` would be a legal call.

    given: what the runtime passes by position, in words. reserved: keywords of the stage itself,
    which never reach the function. Raises GraphError at the user's line.
    """
    signature = signature_of(function)
    if signature is None:
        return
    parameters = list(signature.parameters.values())
    leading = leading_parameters(function)
    takes_any = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    if len(leading) < len(given) and not takes_any:
        raise refuse(
            f"{role}: '{function.__name__}' is called with {', '.join(given)}, "
            f"but takes {_count(len(leading))} by position{origin(function)}",
            hint=f"def {function.__name__}({', '.join(_identifier(word) for word in given)}, ...)",
        )
    taken = {p.name for p in leading[: len(given)]}
    open_names = [p.name for p in parameters if p.kind in _NAMED and p.name not in taken]
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters):
        _check_known(function, params, open_names, taken, role)
    _check_complete(function, params, parameters, taken, reserved, role)


def leading_parameters(function: AnyFunction) -> list[Parameter]:
    """The parameters that can be passed by position, in order."""
    signature = signature_of(function)
    if signature is None:
        return []
    return [p for p in signature.parameters.values() if p.kind in _POSITIONAL]


def signature_of(function: AnyFunction) -> inspect.Signature | None:
    """None for builtins that do not tell."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def _check_known(
    function: AnyFunction,
    params: Mapping[str, Any],
    open_names: list[str],
    taken: set[str],
    role: str,
) -> None:
    for name in params:
        if name in taken:
            raise refuse(f"{role}: '{name}' of '{function.__name__}' is filled in by the runtime")
        if name not in open_names:
            raise refuse(
                f"{role}: '{function.__name__}' has no parameter '{name}'{origin(function)}",
                hint=choices(name, open_names, what="parameter"),
            )


def _check_complete(
    function: AnyFunction,
    params: Mapping[str, Any],
    parameters: list[Parameter],
    taken: set[str],
    reserved: Collection[str],
    role: str,
) -> None:
    for parameter in parameters:
        name = parameter.name
        required = parameter.kind in _NAMED and parameter.default is Parameter.empty
        if not required or name in params or name in taken:
            continue
        hint = f"{name}=..."
        if name in reserved:
            hint = f"rename it: '{name}' is a keyword of the stage and never reaches the function"
        raise refuse(
            f"{role}: '{function.__name__}' needs a parameter '{name}'{origin(function)}",
            hint=hint,
        )


def _count(number: int) -> str:
    return "none" if number == 0 else f"only {number}"


def _identifier(words: str) -> str:
    return words.split()[-1]
