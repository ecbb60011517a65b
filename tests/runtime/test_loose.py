"""Rows that go to the pool from where they are: what is read there is what a batch would hold."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from flowgraph.ir.types import Dim, Dtype, Field, Ragged, RecordType
from flowgraph.runtime.batch import MANY_BYTES, Batch
from flowgraph.runtime.cells import counted
from flowgraph.runtime.failures import RecordMismatch
from flowgraph.runtime.loose import LooseBatch
from flowgraph.runtime.pool import Reader, Segment
from tests.runtime.record_strategies import typed_rows, unhurried

Rows = list[dict[str, Any]]


def ragged(dtype: Dtype, *fixed: Dim, name: str = "x") -> Field:
    return Field(name=name, dtype=dtype, dims=(Ragged("n"), *fixed))


def stored(type: RecordType, rows: Rows) -> Batch:
    segment = Segment("worker-0", 1 << 20)
    handle = segment.try_write(LooseBatch.of(type, rows))
    assert handle is not None
    return Reader().open(handle)


def of_one(field: Field, cells: list[Any]) -> Batch:
    return stored(RecordType(key=(), fields=(field,)), [{field.name: cell} for cell in cells])


@unhurried
@given(typed_rows())
def test_any_records_are_in_the_pool_what_they_are_as_a_batch(
    case: tuple[RecordType, Rows],
) -> None:
    type, rows = case
    assert stored(type, rows).equals(Batch.from_rows(type, rows))


@pytest.mark.parametrize(
    "dtype", ["uint8", "int32", "int64", "float16", "float32", "float64", "bool"]
)
@pytest.mark.parametrize("fixed", [(), (3,), (2, 2)])
def test_tensors_and_arrays_are_joined_alike(dtype: Dtype, fixed: tuple[int, ...]) -> None:
    arrays = [np.full((n, *fixed), n % 2, dtype) for n in (2, 0, 5, 1)]
    field = ragged(dtype, *fixed)
    assert counted(field, arrays) is not None
    tensors = [torch.from_numpy(array) for array in arrays]
    assert counted(field, tensors) is not None
    plain = of_one(field, [array.tolist() or array for array in arrays])
    assert of_one(field, arrays).equals(plain)
    assert of_one(field, tensors).equals(plain)


def test_bfloat16_tensors_keep_their_bits() -> None:
    tensors = [torch.tensor([1.5, -2.0, float("inf")]).bfloat16(), torch.ones(1).bfloat16()]
    field = ragged("bfloat16")
    assert counted(field, tensors) is not None
    bits = torch.cat(tensors).view(torch.int16).numpy().view(np.uint16)
    assert of_one(field, tensors)["x"].values.tolist() == bits.tolist()
    mixed = [tensors[0], [1.0]]  # cell by cell
    assert counted(field, mixed) is None
    assert of_one(field, mixed)["x"].values.tolist() == bits.tolist()


def test_strided_tensors_are_read_by_their_strides() -> None:
    wide = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    batch = of_one(ragged("int32"), [wide[:, 1], wide[0, ::2], wide.T[3]])
    assert batch["x"].values.tolist() == [1, 5, 9, 0, 2, 3, 7, 11]


ODD: dict[str, Callable[[], list[Any]]] = {
    "a list among tensors": lambda: [torch.ones(2), [1.0]],
    "another dtype": lambda: [torch.ones(2), torch.ones(2, dtype=torch.float64)],
    "an array among tensors": lambda: [torch.ones(2), np.ones(2, np.float32)],
    "a subclass": lambda: [torch.nn.Parameter(torch.ones(2), requires_grad=False)],
}


@pytest.mark.parametrize("cells", ODD.values(), ids=ODD)
def test_odd_cells_are_taken_one_by_one(cells: Callable[[], list[Any]]) -> None:
    field = ragged("float32")
    assert counted(field, cells()) is None
    assert set(of_one(field, cells())["x"].values.tolist()) == {1.0}


@pytest.mark.parametrize(
    "cells", [[torch.ones(2, 2)] * 2, [torch.ones(2), torch.ones(1, 2)], [torch.ones(())]]
)
def test_wrong_dims_are_named_before_anything_is_written(cells: list[Any]) -> None:
    with pytest.raises(RecordMismatch, match="field 'x' of row"):
        of_one(ragged("float32"), cells)


NOT_HERE: dict[str, tuple[Callable[[], Any], str]] = {
    "gradient": (lambda: torch.ones(2, requires_grad=True), "needs a gradient: detach"),
    "device": (lambda: torch.ones(2, device="meta"), "on meta: cpu"),
    "sparse": (lambda: torch.ones(2).to_sparse(), "sparse tensor: to_dense"),
}


@pytest.mark.parametrize("kind", NOT_HERE)
def test_a_tensor_without_memory_here_is_named_with_its_row_and_leaves_nothing(kind: str) -> None:
    make, what = NOT_HERE[kind]
    segment = Segment("worker-0", 1 << 20)
    type = RecordType(key=(), fields=(ragged("float32"),))
    loose = LooseBatch.of(type, [{"x": torch.ones(3)}, {"x": make()}])
    with pytest.raises(RecordMismatch, match=f"field 'x' of row 1: .*{what}"):
        segment.try_write(loose)
    assert segment.used == 0
    with pytest.raises(RecordMismatch, match="row 1"):
        Batch.from_rows(type, [{"x": torch.ones(3)}, {"x": make()}])


def test_fields_that_share_a_dim_must_agree_before_anything_is_written() -> None:
    type = RecordType(key=(), fields=(ragged("int32", name="a"), ragged("int32", name="b")))
    rows = [{"a": torch.ones(2).int(), "b": torch.ones(n).int()} for n in (2, 3)]
    with pytest.raises(RecordMismatch, match="field 'b' of row 1: has 3 n where 'a' has 2"):
        LooseBatch.of(type, rows)


def test_a_large_batch_of_rows_is_what_its_parts_are() -> None:
    """Its loose columns share one piece of memory, the others do not."""
    fields = (
        ragged("float32", name="a"),
        ragged("int64", name="b"),
        Field(name="c", dtype="int64"),
    )
    type = RecordType(key=(), fields=fields)
    rows: Rows = [
        {"a": torch.full((n * 1000,), float(n)), "b": np.arange(n * 1000), "c": n}
        for n in range(40)
    ]
    batch = Batch.from_rows(type, rows)
    assert batch.nbytes > MANY_BYTES
    assert list(batch.columns) == ["a", "b", "c"]
    few = Batch.concat(Batch.from_rows(type, rows[i : i + 4]) for i in range(0, 40, 4))
    assert batch.equals(few)
