"""One field of a record class: from a Python annotation to dtype and dims."""

import inspect
import typing
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from flowgraph.dsl.annotations import spelled, strip
from flowgraph.dsl.location import refuse
from flowgraph.ir.types import DTYPES, Dim, Dtype, Field, Ragged, Symbol

_SCALARS: dict[type, Dtype] = {bool: "bool", int: "int64", float: "float32", str: "str"}
_LISTS = (list, Sequence, Iterable, Collection)
_CLASSES = {
    "bool": ("bool",),
    "int64": ("uint8", "int32", "int64"),
    "float32": ("float16", "bfloat16", "float32", "float64"),
    "str": ("str",),
}
"""What a plain Python annotation accepts, by the dtype that it makes."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """What `tensor` says: dtype and dims of an array field."""

    dtype: Dtype
    dims: tuple[Dim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A field as the user wrote it. exact: the dtype was spelled out. optional: has a default."""

    field: Field
    exact: bool
    optional: bool

    def accepts(self, found: Field) -> bool:
        """Whether values of a stream's field can be handed over as this field."""
        dtypes = (self.field.dtype,) if self.exact else _CLASSES[self.field.dtype]
        if found.dtype not in dtypes or len(found.dims) != len(self.field.dims):
            return False
        return all(map(_same_dim, self.field.dims, found.dims))


def tensor(dtype: str, *dims: int | str | Ragged | Symbol) -> TensorType:
    """The type of an array field; ragged dims come first, a str names a symbolic dim.

    >>> images = Annotated[
    ...     list[np.ndarray], fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), 16)
    ... ]

    Raises GraphError at the user's line for an unknown dtype, a negative or misplaced dim.
    """
    if dtype not in DTYPES:
        raise refuse(f"tensor: unknown dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")
    made: list[Dim] = []
    for dim in dims:
        if isinstance(dim, bool) or not isinstance(dim, int | str | Ragged | Symbol):
            raise refuse(f"tensor: a dim is an int, a name or fg.ragged(name), got {dim!r}")
        if isinstance(dim, int) and dim < 1:
            raise refuse(f"tensor: a dim is at least 1, got {dim}")
        if isinstance(dim, Ragged) and made and not isinstance(made[-1], Ragged):
            raise refuse(f"tensor: ragged dims come before all others, got {dim} after {made[-1]}")
        made.append(Symbol(dim) if isinstance(dim, str) else dim)
    return TensorType(cast(Dtype, dtype), tuple(made))


def ragged(name: str) -> Ragged:
    """A dim whose length differs from row to row; fields that share its name share its lengths.

    >>> loss_mask: Annotated[list[float], fg.ragged("tokens")]  # as long as `tokens`
    """
    if not name.isidentifier():
        raise refuse(f"ragged: expects a name, got {name!r}", hint='fg.ragged("tokens")')
    return Ragged(name)


def declare(name: str, annotation: Any, *, owner: str, optional: bool) -> Declared:
    """Read one field's annotation. Raises GraphError at the user's line."""
    where = f"record type {owner}, field '{name}'"
    base, extras = strip(annotation)
    spec = next((extra for extra in extras if isinstance(extra, TensorType)), None)
    if spec is not None:
        field = Field(name=name, dtype=spec.dtype, dims=spec.dims)
        return Declared(field=field, exact=True, optional=optional)
    names = [extra.name for extra in extras if isinstance(extra, Ragged)]
    dtype, dims, exact = _read(base, name, names, where, depth=0)
    if len(names) > sum(isinstance(dim, Ragged) for dim in dims):
        raise refuse(f"{where}: fg.ragged({names[-1]!r}) names no list of {spelled(base)}")
    return Declared(field=Field(name=name, dtype=dtype, dims=dims), exact=exact, optional=optional)


def _read(
    base: Any, name: str, names: list[str], where: str, *, depth: int
) -> tuple[Dtype, tuple[Dim, ...], bool]:
    """(dtype, dims, exact) of an annotation inside `depth` lists."""
    if base in _SCALARS:
        return _SCALARS[base], (), False
    if inspect.isclass(base) and base.__module__ == "numpy":
        dtype = base.__name__.rstrip("_")
        if dtype in DTYPES:
            return cast(Dtype, dtype), (), True
    origin, arguments = typing.get_origin(base), typing.get_args(base)
    if origin is Literal:
        kinds = {type(value) for value in arguments}
        if len(kinds) == 1 and (kind := kinds.pop()) in _SCALARS:
            return _SCALARS[kind], (), False
    if origin is tuple and Ellipsis not in arguments:
        return _read_tuple(base, arguments, name, names, where, depth)
    if origin in (*_LISTS, tuple):
        inner, extras = strip(arguments[0])
        names += [extra.name for extra in extras if isinstance(extra, Ragged)]
        dim = names[depth] if depth < len(names) else f"{name}_{depth}" if depth else name
        dtype, dims, exact = _read(inner, name, names, where, depth=depth + 1)
        return dtype, (Ragged(dim), *dims), exact
    raise _unreadable(base, where)


def _read_tuple(
    base: Any, arguments: tuple[Any, ...], name: str, names: list[str], where: str, depth: int
) -> tuple[Dtype, tuple[Dim, ...], bool]:
    if not arguments or len(set(arguments)) != 1:
        raise _unreadable(base, where)
    dtype, dims, exact = _read(arguments[0], name, names, where, depth=depth)
    if any(isinstance(dim, Ragged) for dim in dims):
        raise _unreadable(base, where)
    return dtype, (len(arguments), *dims), exact


def _unreadable(base: Any, where: str) -> Exception:
    text = spelled(base)
    hint = "bool, int, float, str, a list of those, or Annotated[np.ndarray, fg.tensor(...)]"
    if "ndarray" in text:
        hint = 'Annotated[np.ndarray, fg.tensor("float32", fg.ragged("rows"), 16)]'
    if type(None) in typing.get_args(base):
        hint = "records have no missing values: take a default, or an empty list"
    return refuse(f"{where}: {text} is no type that a stream can carry", hint=hint)


def _same_dim(wanted: Dim, found: Dim) -> bool:
    if isinstance(wanted, Ragged) or isinstance(found, Ragged):
        return isinstance(wanted, Ragged) and isinstance(found, Ragged)
    return wanted == found or isinstance(wanted, Symbol) or isinstance(found, Symbol)
