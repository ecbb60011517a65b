"""Hypothesis strategies for record types and records of them."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from flowgraph.ir.types import Dtype, Field, Ragged, RecordType

unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""Says nothing about time: the machine that tests is busy with other things."""

_NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "uint8": st.integers(0, 255),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float16": st.floats(width=16),
    "bfloat16": st.sampled_from([0.0, -1.5, 3.0, 2.0**100, float("inf"), float("nan")]),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "str": st.text(alphabet="aé語😀\0", max_size=4),
}
_ROUGH = {"bfloat16": np.float32, "str": np.str_}


@st.composite
def fields(draw: st.DrawFn, name: str) -> Field:
    """Any dtype, up to three ragged dims of their own, up to two fixed dims (none for text)."""
    dtype: Dtype = draw(st.sampled_from(sorted(_NUMBERS)))
    ragged = tuple(Ragged(f"{name}{level}") for level in range(draw(st.integers(0, 3))))
    fixed = () if dtype == "str" else tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return Field(name=name, dtype=dtype, dims=(*ragged, *fixed))


def types() -> st.SearchStrategy[RecordType]:
    """A key and up to three further fields."""
    sample = Field(name="sample", dtype="int64")
    others = st.integers(0, 3).flatmap(lambda n: st.tuples(*(fields(f"f{i}") for i in range(n))))
    return others.map(lambda more: RecordType(fields=(sample, *more)))


def cells(field: Field) -> st.SearchStrategy[Any]:
    """A value as `Batch.to_rows` gives it."""
    return _ragged(field, len(field.ragged))


def _ragged(field: Field, depth: int) -> st.SearchStrategy[Any]:
    if depth == 0:
        return _fixed(field)
    inner = st.lists(_ragged(field, depth - 1), max_size=3)
    if depth > 1 or field.dtype == "str":
        return inner
    fixed = tuple(d for d in field.dims if isinstance(d, int))
    dtype = _ROUGH.get(field.dtype, field.dtype)
    return inner.map(lambda entries: np.array(entries, dtype).reshape((len(entries), *fixed)))


def _fixed(field: Field) -> st.SearchStrategy[Any]:
    fixed = tuple(d for d in field.dims if isinstance(d, int))
    number = _NUMBERS[field.dtype]
    if not fixed:
        return number
    count = int(np.prod(fixed))
    dtype = _ROUGH.get(field.dtype, field.dtype)
    return st.lists(number, min_size=count, max_size=count).map(
        lambda flat: np.array(flat, dtype).reshape(fixed)
    )


@st.composite
def typed_rows(draw: st.DrawFn, max_rows: int = 5) -> tuple[RecordType, list[dict[str, Any]]]:
    """A record type and records of it."""
    type = draw(types())
    row = st.fixed_dictionaries({field.name: cells(field) for field in type.fields})
    return type, draw(st.lists(row, max_size=max_rows))
