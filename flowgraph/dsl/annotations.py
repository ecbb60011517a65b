"""Reading annotations: which type the user wrote, resolved where they wrote it."""

import collections.abc
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from flowgraph.dsl.functions import AnyFunction, origin
from flowgraph.dsl.location import refuse
from flowgraph.dsl.signature import leading_parameters

MISSING = inspect.Parameter.empty
"""Stands for an annotation that is not there."""

_SERIES = (
    collections.abc.Sequence,
    collections.abc.Iterable,
    collections.abc.Collection,
    collections.abc.Reversible,
    list,
    tuple,
)
_ONE_PASS = (collections.abc.Iterator, collections.abc.Generator)


def first_annotation(function: AnyFunction, role: str) -> Any:
    """Annotation of the first parameter, or `MISSING`."""
    leading = leading_parameters(function)
    if not leading or leading[0].annotation is MISSING:
        return MISSING
    return _resolved(leading[0].annotation, function, role)


def return_annotation(function: AnyFunction, role: str) -> Any:
    """What the function says it returns, or `MISSING`; a class returns itself."""
    if inspect.isclass(function):
        return function
    found = getattr(inspect.unwrap(function), "__annotations__", {}).get("return", MISSING)
    return MISSING if found is MISSING else _resolved(found, function, role)


def element_of(series: Any, function: AnyFunction, role: str) -> Any:
    """T of Sequence[T], list[T], Iterable[T], or of a class that is one; `MISSING` if not told.

    Raises GraphError for an iterator, which can be read only once.
    """
    form = typing.get_origin(series)
    if form in _ONE_PASS or series in _ONE_PASS or inspect.isgeneratorfunction(function):
        raise refuse(
            f"{role}: '{function.__name__}' returns an iterator, whose position nobody can store"
            f"{origin(function)}",
            hint="return a Sequence, or an iterable with state_dict() and load_state_dict()",
        )
    if form in _SERIES:
        arguments = typing.get_args(series)
        return arguments[0] if arguments else MISSING
    owner = form if inspect.isclass(form) else series
    return _element_of_class(owner, function, role) if inspect.isclass(owner) else MISSING


def class_hints(owner: Any) -> dict[str, Any]:
    """Annotations of a record class by field. Raises GraphError when one cannot be resolved."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise refuse(
            f"record type {owner.__name__}: {error}",
            hint="import that name at the top level of the file, not under TYPE_CHECKING",
        ) from error


def strip(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """(the type itself, what Annotated adds), without Required, NotRequired and NewType."""
    extras: tuple[Any, ...] = ()
    while True:
        form = typing.get_origin(annotation)
        if form is Annotated:
            extras = (*extras, *annotation.__metadata__)
            annotation = annotation.__origin__
        elif form in (typing.Required, typing.NotRequired):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        else:
            return annotation, extras


def spelled(annotation: Any) -> str:
    """The annotation as one would write it."""
    if inspect.isclass(annotation) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")


def _element_of_class(owner: type, function: AnyFunction, role: str) -> Any:
    for base in getattr(owner, "__orig_bases__", ()):
        if typing.get_origin(base) in _SERIES and typing.get_args(base):
            return typing.get_args(base)[0]
    getter = owner.__dict__.get("__getitem__")
    if getter is None:
        return MISSING
    found = getattr(getter, "__annotations__", {}).get("return", MISSING)
    return MISSING if found is MISSING else _resolved(found, getter, role)


def _resolved(annotation: Any, function: AnyFunction, role: str) -> Any:
    """One annotation alone, so that another one's unknown name does no harm."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    names: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, globalns=dict(names), include_extras=True)["it"]
    except NameError as error:
        raise refuse(
            f"{role}: the annotation {annotation!r} of '{function.__name__}' cannot be read: "
            f"{error}{origin(function)}",
            hint="import that name at the top level of the file, not under TYPE_CHECKING",
        ) from error
