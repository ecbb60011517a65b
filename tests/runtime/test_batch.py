"""Batches: records in and out unchanged, the algebra of rows, and the errors of misfits."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flowgraph.ir.types import AGENT_ROW, Dim, Dtype, Field, Ragged, RecordType, Symbol
from flowgraph.runtime.batch import ALIGN, Batch, Column
from flowgraph.runtime.failures import RecordMismatch
from tests.runtime.record_strategies import typed_rows, unhurried

Rows = list[dict[str, Any]]


def one(dtype: Dtype, *dims: Dim, name: str = "x") -> RecordType:
    return RecordType(
        fields=(Field(name="sample", dtype="int64"), Field(name=name, dtype=dtype, dims=dims))
    )


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, through lists of arrays; a NaN equals itself."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    )


def same_rows(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> bool:
    return len(a) == len(b) and all(
        x.keys() == y.keys() and all(same(x[k], y[k]) for k in x) for x, y in zip(a, b, strict=True)
    )


@unhurried
@given(typed_rows())
def test_records_come_out_as_they_went_in(case: tuple[RecordType, Rows]) -> None:
    type, rows = case
    batch = Batch.from_rows(type, rows)
    assert batch.rows == len(rows)
    assert list(batch.columns) == list(type.names)
    assert same_rows(batch.to_rows(), rows)
    assert same_rows([batch.row(i) for i in range(batch.rows)], rows)


@unhurried
@given(typed_rows())
def test_objects_with_attributes_are_records_too(case: tuple[RecordType, Rows]) -> None:
    type, rows = case
    objects = [SimpleNamespace(**row, extra=1) for row in rows]
    assert Batch.from_rows(type, objects).equals(Batch.from_rows(type, rows))


@unhurried
@given(typed_rows(), st.data())
def test_take_gives_the_rows_asked_for(case: tuple[RecordType, Rows], data: st.DataObject) -> None:
    type, rows = case
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8)) if rows else []
    taken = Batch.from_rows(type, rows).take(index)
    assert same_rows(taken.to_rows(), [rows[i] for i in index])


@pytest.mark.parametrize("inner", [(), (Ragged("m"),)])
def test_long_rows_are_taken_as_short_ones_are(inner: tuple[Ragged, ...]) -> None:
    draw = np.random.default_rng(1)
    lengths = [0, 700, 3, 0, 900, 500, 0]
    rows: Rows = [
        {"sample": i, "x": [draw.integers(0, 9, n)] * (i % 3) if inner else draw.integers(0, 9, n)}
        for i, n in enumerate(lengths)
    ]
    batch = Batch.from_rows(one("int64", *inner, Ragged("n")), rows)
    for index in ([], [3], [0, 1, 2, 3, 4, 5, 6], [4, 5, 1, 1, 0], [6, 5, 4, 3, 2, 1, 0], [1, 4]):
        assert same_rows(batch.take(index).to_rows(), [rows[i] for i in index])


@unhurried
@given(typed_rows())
def test_take_by_mask_keeps_the_rows_where_it_is_true(case: tuple[RecordType, Rows]) -> None:
    type, rows = case
    mask = np.arange(len(rows)) % 2 == 1
    assert same_rows(Batch.from_rows(type, rows).take(mask).to_rows(), rows[1::2])


@unhurried
@given(typed_rows(), st.integers(0, 5), st.integers(0, 5))
def test_parts_joined_again_are_the_whole(
    case: tuple[RecordType, Rows], first: int, second: int
) -> None:
    type, rows = case
    batch = Batch.from_rows(type, rows)
    a, b = sorted((first, second))
    parts = [batch.slice(0, a), batch.slice(a, b), batch.slice(b, batch.rows)]
    assert same_rows(parts[1].to_rows(), rows[a:b])
    assert Batch.concat(parts).equals(batch)


@unhurried
@given(typed_rows())
def test_bytes_written_are_read_as_the_same_batch(case: tuple[RecordType, Rows]) -> None:
    type, rows = case
    batch = Batch.from_rows(type, rows)
    layout, nbytes = batch.layout()
    memory = bytearray(nbytes)
    batch.write_into(memoryview(memory))
    wired = msgpack.unpackb(msgpack.packb(layout))
    assert Batch.read(wired, memoryview(memory)).equals(batch)


def test_reading_copies_nothing_and_is_aligned() -> None:
    batch = Batch.from_rows(AGENT_ROW, [agent_row()] * 3)
    layout, nbytes = batch.layout()
    memory = bytearray(nbytes)
    batch.write_into(memoryview(memory))
    read = Batch.read(layout, memoryview(memory))
    before = read["tokens"].values[0]
    places = [buffer[0] for _, _, *buffers in layout[1] for buffer in buffers]
    memory[places[3]] ^= 1
    assert all(place % ALIGN == 0 for place in places)
    assert read["tokens"].values[0] == before ^ 1
    assert not Batch.read(layout, memoryview(bytes(memory)))["tokens"].values.flags.writeable


def agent_row() -> dict[str, Any]:
    return {
        "sample": 3,
        "trajectory": 0,
        "call": 0,
        "tokens": [5, 6],
        "loss_mask": [0, 1],
        "logprobs": [0.0, -0.5],
        "versions": [-1, 2],
        "reward": 1,
    }


@pytest.mark.parametrize("start", [-64, 1 << 20])
def test_a_layout_outside_the_memory_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match="lies outside 64 bytes"):
        Batch.read((1, (("x", "int64", (start, 1)),)), memoryview(bytearray(64)))


def test_rows_of_one_length_stay_ragged() -> None:
    batch = Batch.from_rows(
        one("int64", Ragged("tokens")), [{"sample": 0, "x": [1]}, {"sample": 1, "x": [2]}]
    )
    assert batch["x"].offsets[0].tolist() == [0, 1, 2]


@unhurried
@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_bfloat16_holds_the_bits_that_torch_rounds_to(values: list[float]) -> None:
    batch = Batch.from_rows(one("bfloat16"), [{"sample": 0, "x": np.float32(v)} for v in values])
    theirs = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16)
    ours = torch.from_numpy(batch["x"].values).view(torch.bfloat16)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours[~ours.isnan()], theirs[~theirs.isnan()])


def test_bfloat16_rounds_ties_to_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800001], np.uint32)
    values = bits.view(np.float32)
    batch = Batch.from_rows(one("bfloat16"), [{"sample": 0, "x": value} for value in values])
    assert [hex(b) for b in batch["x"].values] == ["0x3f80", "0x3f82", "0x3f81", "0x7fc0"]


def test_with_columns_and_select_keep_the_rows() -> None:
    batch = Batch.from_rows(AGENT_ROW, [agent_row()])
    more = batch.with_columns({"advantage": Column("float32", np.ones(1, np.float32))})
    assert more.select(["sample", "advantage"]).to_rows() == [{"sample": 3, "advantage": 1.0}]
    with pytest.raises(ValueError, match="column 'advantage' has 2 rows, expects 1"):
        batch.with_columns({"advantage": Column("float32", np.ones(2, np.float32))})


def test_an_empty_batch_joins_whatever_its_symbols_are() -> None:
    type = one("float32", Ragged("n"), Symbol("width"))
    full = Batch.from_rows(type, [{"sample": 0, "x": np.ones((2, 7), np.float32)}])
    assert Batch.concat([Batch.empty(type), full, Batch.from_rows(type, [])]).equals(full)


def test_arrays_handed_out_cannot_be_written_to() -> None:
    row = Batch.from_rows(AGENT_ROW, [agent_row()]).row(0)
    with pytest.raises(ValueError, match="read-only"):
        row["tokens"][0] = 1


def test_joining_other_columns_is_refused() -> None:
    a = Batch.from_rows(one("int64"), [{"sample": 0, "x": 1}])
    b = Batch.from_rows(one("int64", name="y"), [{"sample": 0, "y": 1}])
    with pytest.raises(ValueError, match=r"cannot join columns \['sample', 'y'\]"):
        Batch.concat([a, b])


@dataclass(frozen=True, slots=True)
class Misfit:
    type: RecordType
    value: Any
    message: str


MISFITS = {
    "float for int": Misfit(one("int64"), 1.5, "expects int64, got float64 array([1.5])"),
    "text for int": Misfit(one("int64"), "a", "expects int64, got <U1"),
    "too large": Misfit(one("uint8"), 256, "expects uint8, got 256"),
    "too small": Misfit(one("uint8"), -1, "expects uint8, got -1"),
    "bool for int": Misfit(one("int64"), True, "expects int64, got bool"),
    "int for bool": Misfit(one("bool"), 1, "expects bool, got int64"),
    "huge float": Misfit(one("float32"), 1e300, "a number too large for it"),
    "nothing": Misfit(one("float32"), None, "expects float32, got object"),
    "number for text": Misfit(one("str"), 3, "expects text, got 3"),
    "texts for text": Misfit(one("str"), ["a"], "expects text, got ['a']"),
    "text for texts": Misfit(one("str", Ragged("n")), "ab", "expects 1 ragged dims, got 'ab'"),
    "number for ragged": Misfit(one("int64", Ragged("n")), 3, "expects 1 ragged dims, got 3"),
    "flat for nested": Misfit(one("int64", Ragged("a"), Ragged("b")), [1], "got 1 at level 1"),
    "another width": Misfit(
        one("float32", Ragged("n"), 3), [[1.0, 2.0]], "expects dims [n*, 3], got shape [1, 2]"
    ),
    "jagged fixed": Misfit(one("float32", 2, 2), [[1.0], [1.0, 2.0]], "expects an array, got"),
    "nested ragged": Misfit(one("int64", Ragged("n")), [[1]], "expects dims [n*], got shape"),
}


@pytest.mark.parametrize("case", MISFITS.values(), ids=MISFITS)
def test_a_misfit_is_refused_and_names_field_row_and_sample(case: Misfit) -> None:
    good = {"str": "a"}.get(case.type.fields[1].dtype, 0)
    rows: Rows = [{"sample": 41, "x": case.value}]
    if not case.type.fields[1].dims and case.type.fields[1].dtype != "bool":
        rows.insert(0, {"sample": 40, "x": good})
    with pytest.raises(RecordMismatch) as caught:
        Batch.from_rows(case.type, rows)
    assert f"field 'x' of row {len(rows) - 1} (sample 41): " in str(caught.value)
    assert case.message in str(caught.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(RecordMismatch, match=r"field 'x' of row 0 \(sample 7\): is missing"):
        Batch.from_rows(one("int64"), [{"sample": 7}])


def test_fields_that_share_a_ragged_dim_must_have_equal_lengths() -> None:
    with pytest.raises(RecordMismatch) as caught:
        Batch.from_rows(AGENT_ROW, [agent_row(), {**agent_row(), "versions": [1]}])
    assert "field 'versions' of row 1 (sample 3): has 1 tokens where 'tokens' has 2" in str(
        caught.value
    )


def test_inner_dims_are_compared_within_their_outer_ones() -> None:
    dims = (Ragged("images"), Ragged("patches"))
    type = RecordType(
        fields=(
            Field(name="a", dtype="int64", dims=dims),
            Field(name="b", dtype="int64", dims=dims),
        ),
        key=(),
    )
    with pytest.raises(RecordMismatch, match="field 'b' of row 1: has 1 patches where 'a' has 2"):
        Batch.from_rows(type, [{"a": [[1]], "b": [[1]]}, {"a": [[1, 2]], "b": [[1]]}])


def test_a_symbol_has_one_length() -> None:
    rows = [{"sample": 0, "x": [1.0, 2.0]}, {"sample": 1, "x": [1.0]}]
    with pytest.raises(RecordMismatch, match=r"row 1 \(sample 1\): dims \[width\]: a symbol has"):
        Batch.from_rows(one("float32", Symbol("width")), rows)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda: Column("int64", np.zeros(2, np.int32)), "expects int64"),
        (lambda: Column("str", np.zeros(2, np.uint8)), "expects offsets over its bytes"),
        (lambda: Column("int64", np.zeros(2, np.int64), (np.array([0, 3]),)), "expects 0..2"),
        (lambda: Column("int64", np.zeros(2, np.int64), (np.array([1, 2]),)), "got 1..2"),
        (
            lambda: Column("int64", np.zeros(2, np.int64), (np.array([0, 3]), np.array([0, 2]))),
            "expects 0..1",
        ),
    ],
)
def test_a_column_whose_offsets_do_not_fit_is_refused(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        column()
