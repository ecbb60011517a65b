"""What the user's code returned, as it was when it was returned.

A unit's records are joined once all of them are there, and put in the pool later still, while other
code of the user's runs. Functions may return the same memory again for the next record, or keep
what they returned and change it; nobody shall have to know when we look. So whatever somebody else
could still change is copied at once. A fresh array, to which nothing but its record refers, is left
where it is: nobody is there to change it.

Guarantee: arrays, tensors, buffers, numbers and text, and lists and tuples of them, in what is
handed back, never change. Objects of other kinds are read as they are when the unit is complete.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any
from weakref import getweakrefcount

import numpy as np

from flowgraph.ir.types import RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.column import Values
from flowgraph.runtime.rows import locked

_NUMBERS = {kind for kind in np.sctypeDict.values() if issubclass(kind, np.number | np.bool_)}

_PLAIN = frozenset({int, float, bool, str, bytes, type(None), *_NUMBERS})
"""Kinds of values that cannot be changed."""

_SHARED = sys.maxsize


def _references(values: Sequence[Any]) -> list[int]:
    """How many refer to each of them, this sequence and the look at it included."""
    return list(map(sys.getrefcount, values))


_ALONE = _references([object()])[0]
"""References of a value that nothing but its sequence refers to."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Names of the fields that are taken of a record. arrays: those for which a list of numbers is
    as good as an array of them."""

    names: tuple[str, ...]
    arrays: frozenset[str] = frozenset()

    @classmethod
    def of(cls, type: RecordType) -> Wanted:
        flat = (f.name for f in type.fields if f.dtype != "str" and f.dims and len(f.ragged) < 2)
        return cls(type.names, frozenset(flat))


def settled(wanted: Wanted, record: Any, ours: Container[int] = frozenset()) -> Any:
    """The record's fields by name; the record itself where it lacks one of them.

    Its fields count as shared when the caller goes on referring to the record. ours: what
    `memory_of` says of the batch that the record was made from.
    """
    look = record.__getitem__ if isinstance(record, Mapping) else partial(getattr, record)
    try:
        values = list(map(look, wanted.names))
    except (KeyError, AttributeError):
        return record  # whoever checks its type says what it lacks
    del record, look
    return _named(wanted, values, ours)


def settled_columns(given: Any, ours: Container[int] = frozenset()) -> Any:
    """All entries of a mapping, as `settled` has a record's; anything else as it is."""
    if not isinstance(given, Mapping):
        return given
    wanted, values = Wanted(tuple(given)), list(given.values())
    del given
    return _named(wanted, values, ours)


def memory_of(batch: Batch) -> frozenset[int]:
    """Identities of the memory that a batch's columns lie in, while the batch is held.

    Records are read-only views of it, which a function may pass on: nobody changes a batch. Those
    of bfloat16 columns are not: they are float32.
    """
    columns = (column for column in batch.columns.values() if column.dtype != "bfloat16")
    return frozenset(id(locked(column)[:0].base) for column in columns)


def _named(wanted: Wanted, values: list[Any], ours: Container[int]) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for name, value, references in zip(wanted.names, values, _references(values), strict=True):
        if type(value) is np.ndarray and _is_settled(value, references, ours):
            taken[name] = value  # the usual case of anything large
            continue
        numbers = _array(value) if name in wanted.arrays else None
        taken[name] = _settled(value, references, ours) if numbers is None else numbers
    return taken


def _array(values: Any) -> Values | None:
    """A list of numbers as an array, which is what its checks would make of it.

    Numbers by the first of them: others that do not go with it are refused all the same.
    """
    if type(values) is not list or not values or type(values[0]) not in (int, float, bool):
        return None
    try:
        return np.array(values)
    except (ValueError, TypeError, RuntimeError):
        return None  # the checks say why


def _settled(value: Any, references: int, ours: Container[int]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is np.ndarray:
        return value if _is_settled(value, references, ours) else value.copy()
    if isinstance(value, list | tuple):
        return _parts(value, references == _ALONE, ours)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, bytearray | memoryview | array):
        return np.array(value)
    torch = sys.modules.get("torch")  # without it nobody has a tensor
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_tensor(torch, value)
    return value


def _is_settled(value: Values, references: int, ours: Container[int]) -> bool:
    """Whether nobody can change the array: nobody else has it, or it is a view of a batch."""
    if value.base is not None:
        return id(value.base) in ours and not value.flags.writeable
    return references == _ALONE and value.flags.owndata and not getweakrefcount(value)


def _parts(values: Sequence[Any], alone: bool, ours: Container[int]) -> Sequence[Any]:
    """alone: whether nobody else refers to the sequence; else its parts are anybody's too."""
    if _PLAIN.issuperset(map(type, values)):
        return values if alone or isinstance(values, tuple) else list(values)
    references: Iterable[int] = _references(values) if alone else repeat(_SHARED)
    return list(map(partial(_settled, ours=ours), values, references))


def _of_tensor(torch: Any, value: Any) -> Any:
    """Its values in memory of their own. One that has none here stays, to be refused."""
    if value.requires_grad or value.layout is not torch.strided or value.device.type != "cpu":
        return value
    if value.dtype is torch.bfloat16:  # numpy has none
        return value.clone()
    return value.numpy().copy()
