"""Dataclasses of the dialects as plain data and back: the one mechanism of text and binary form.

Fields at their default are left out. Reading is strict: nothing is converted, unknown keys are
refused. See `data.py` for what plain data are.
"""

import difflib
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import cattrs
from cattrs.errors import AttributeValidationNote, ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from flowgraph.ir.data import PlainError, plain_data
from flowgraph.ir.types import Ragged, Symbol

Read = Callable[[Any, Any], Any]
T = TypeVar("T")


def to_plain(value: Any) -> dict[str, Any]:
    """A dataclass of a dialect as plain data; fields in declaration order."""
    plain: dict[str, Any] = _converter().unstructure(value)
    return plain


def from_plain(cls: type[T], plain: Any) -> T:
    """The inverse of `to_plain`. Raises PlainError naming the first place that does not fit."""
    return _converter().structure(plain, cls)


@lru_cache(maxsize=1)
def _converter() -> cattrs.Converter:
    made = cattrs.Converter(detailed_validation=True)
    for scalar, also in ((bool, ()), (int, ()), (str, ()), (float, (int,))):
        made.register_structure_hook(scalar, _scalar_reader(scalar, also))
    made.register_structure_hook_func(lambda t: t is Any, lambda value, _: plain_data(value))
    made.register_unstructure_hook_func(lambda t: t is Any, plain_data)
    made.register_structure_hook_factory(_is_mapping, lambda t: _mapping_reader(made, t))
    made.register_unstructure_hook_func(_is_mapping, plain_data)
    made.register_structure_hook_factory(_is_tuple, lambda t: _tuple_reader(made, t))
    made.register_structure_hook_func(_is_dim, _read_dim)
    made.register_unstructure_hook_func(_is_dim, _write_dim)
    made.register_structure_hook_func(_is_flag_or_names, _read_flag_or_names)
    made.register_unstructure_hook_func(_is_flag_or_names, plain_data)
    made.register_structure_hook_func(_is_literal, _read_literal)
    made.register_structure_hook_factory(_is_dataclass, lambda t: _class_reader(made, t))
    made.register_unstructure_hook_factory(
        _is_dataclass, lambda t: make_dict_unstructure_fn(t, made, _cattrs_omit_if_default=True)
    )
    return made


def _is_dataclass(t: Any) -> bool:
    return isinstance(t, type) and hasattr(t, "__dataclass_fields__")


def _is_mapping(t: Any) -> bool:
    return get_origin(t) is Mapping


def _is_tuple(t: Any) -> bool:
    return get_origin(t) is tuple


def _is_union_of(t: Any, *members: Any) -> bool:
    return get_origin(t) in (Union, UnionType) and set(get_args(t)) == set(members)


def _is_dim(t: Any) -> bool:
    return _is_union_of(t, int, Symbol, Ragged)


def _is_flag_or_names(t: Any) -> bool:
    return _is_union_of(t, bool, tuple[str, ...])


def _is_literal(t: Any) -> bool:
    return getattr(get_origin(t), "_name", "") == "Literal"


def _class_reader(made: cattrs.Converter, cls: type) -> Read:
    inner: Read = make_dict_structure_fn(
        cls, made, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True
    )

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise PlainError((), f"expects a {cls.__name__}, got {value!r:.40}")
        try:
            return inner(value, cls)
        except ClassValidationError as error:
            raise _first(error, cls) from None

    return read


def _first(error: ClassValidationError, cls: type) -> PlainError:
    """The first fault of a class, unknown keys before the rest: they often explain it."""
    for cause in error.exceptions:
        if isinstance(cause, ForbiddenExtraKeysError):
            key = sorted(map(str, cause.extra_fields))[0]
            fields = list(cls.__dataclass_fields__)  # type: ignore[attr-defined]
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0.0)[0]
            return PlainError((key,), f"{cls.__name__} has no {key!r}; nearest: {near!r}")
    cause = error.exceptions[0]
    notes = [n for n in getattr(cause, "__notes__", ()) if isinstance(n, AttributeValidationNote)]
    if isinstance(cause, PlainError):
        return cause.under(notes[0].name)
    if isinstance(cause, KeyError):
        return PlainError((), f"{cls.__name__} lacks {cause.args[0]!r}")
    raise error


def _scalar_reader(scalar: type, also: tuple[type, ...]) -> Read:
    exact = (scalar, *also)

    def read(value: Any, _: Any) -> Any:
        # `type`, since True is an int and would pass for 1.
        if type(value) in exact:
            return value
        raise PlainError((), f"expects {scalar.__name__}, got {value!r:.40}")

    return read


def _tuple_reader(made: cattrs.Converter, t: Any) -> Read:
    arguments = get_args(t)
    many = arguments[-1] is Ellipsis
    elements = [arguments[0]] if many else list(arguments)
    readers = [made.get_structure_hook(element) for element in elements]

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, list | tuple) or not (many or len(value) == len(elements)):
            count = "several" if many else f"{len(elements)}"
            raise PlainError((), f"expects {count} values, got {value!r:.40}")
        found = []
        for i, item in enumerate(value):
            one = 0 if many else i
            try:
                found.append(readers[one](item, elements[one]))
            except PlainError as error:
                raise error.under(i) from None
        return tuple(found)

    return read


def _mapping_reader(made: cattrs.Converter, t: Any) -> Read:
    element = get_args(t)[1]
    read_one = made.get_structure_hook(element)

    def read(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise PlainError((), f"expects a map, got {value!r:.40}")
        found = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise PlainError((), f"expects text as key, got {key!r:.40}")
            try:
                found[key] = read_one(item, element)
            except PlainError as error:
                raise error.under(key) from None
        return found

    return read


def _read_dim(value: Any, _: Any) -> int | Symbol | Ragged:
    if type(value) is int:
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        (kind, name), *_rest = value.items()
        if kind in ("symbol", "ragged") and isinstance(name, str):
            return Symbol(name) if kind == "symbol" else Ragged(name)
    raise PlainError((), f"expects a dim (16, n or n*), got {value!r:.40}")


def _write_dim(dim: int | Symbol | Ragged) -> Any:
    if isinstance(dim, int):
        return dim
    return {"symbol" if isinstance(dim, Symbol) else "ragged": dim.name}


def _read_flag_or_names(value: Any, _: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise PlainError((), f"expects true, false or names, got {value!r:.40}")


def _read_literal(value: Any, t: Any) -> Any:
    if isinstance(value, str) and value in get_args(t):
        return value
    raise PlainError((), f"expects one of {', '.join(get_args(t))}, got {value!r:.40}")
