"""From the user's record classes to record types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import pytest

import flowgraph as fg
from flowgraph.dsl.fields import declare
from flowgraph.dsl.records import Record, check_input, source_type
from flowgraph.ir.errors import GraphError
from flowgraph.ir.types import RecordType

Token = NewType("Token", int)


@dataclass
class Mixed:
    flag: bool
    count: int
    share: float
    text: str
    tokens: list[Token]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]
    words: Sequence[str]
    nested: list[list[int]]
    named: Annotated[list[list[int]], fg.ragged("images"), fg.ragged("patches")]
    box: tuple[int, int, int, int]
    boxes: list[tuple[float, float]]
    kind: Literal["a", "b"]
    byte: np.uint8
    pixels: Annotated[
        list[npt.NDArray[np.float32]],
        fg.tensor("float32", fg.ragged("images"), fg.ragged("patches"), 16),
    ]
    state: Annotated[npt.NDArray[Any], fg.tensor("bfloat16", "width")]
    version: ClassVar[int] = 1


class Row(TypedDict):
    tokens: list[int]
    weight: NotRequired[float]


class Pair(NamedTuple):
    left: int
    right: float = 0.0


def type_of(record: Any) -> RecordType:
    return source_type(record, role="source 'x'", hint="")


def test_each_annotation_has_its_dtype_and_dims() -> None:
    assert [str(field) for field in type_of(Mixed).fields] == [
        "sample: int64",
        "flag: bool",
        "count: int64",
        "share: float32",
        "text: str",
        "tokens: int64[tokens*]",
        "loss_mask: float32[tokens*]",
        "words: str[words*]",
        "nested: int64[nested*, nested_1*]",
        "named: int64[images*, patches*]",
        "box: int64[4]",
        "boxes: float32[boxes*, 2]",
        "kind: str",
        "byte: uint8",
        "pixels: float32[images*, patches*, 16]",
        "state: bfloat16[width]",
    ]


def test_typed_dicts_and_named_tuples_are_records_too() -> None:
    assert type_of(Row).names == ("sample", "tokens", "weight")
    assert type_of(Pair).names == ("sample", "left", "right")


def test_a_field_with_a_default_may_be_missing_from_the_stream() -> None:
    narrow = RecordType(fields=type_of(Pair).fields[:2])
    check_input(Pair, "pairs", narrow, role="map 'x'")
    with pytest.raises(GraphError, match="'left'"):
        check_input(Pair, "rows", type_of(Row), role="map 'x'")


def test_a_plain_annotation_accepts_any_width_and_a_spelled_one_only_its_own() -> None:
    plain = declare("x", float, owner="R", optional=False)
    exact = declare("x", np.float32, owner="R", optional=False)
    wide = declare("x", np.float64, owner="R", optional=False).field
    assert plain.accepts(wide)
    assert not exact.accepts(wide)
    assert not plain.accepts(declare("x", int, owner="R", optional=False).field)
    assert not plain.accepts(declare("x", list[float], owner="R", optional=False).field)


def test_a_ragged_dim_never_stands_for_a_fixed_one_but_a_symbol_does() -> None:
    def field(*dims: Any) -> Any:
        annotation = Annotated[npt.NDArray[Any], fg.tensor("float32", *dims)]
        return declare("x", annotation, owner="R", optional=False)

    assert field("width").accepts(field(16).field)
    assert not field(16).accepts(field(fg.ragged("rows")).field)
    assert not field(16).accepts(field(8).field)
    assert field(fg.ragged("rows")).accepts(field(fg.ragged("others")).field)


def test_a_sample_field_is_the_key_and_must_be_an_int() -> None:
    @dataclass
    class Keyed:
        sample: int
        text: str

    @dataclass
    class Misnamed:
        sample: str

    assert type_of(Keyed).names == ("sample", "text")
    with pytest.raises(GraphError, match="must be an int, got sample: str"):
        type_of(Misnamed)


@pytest.mark.parametrize(
    "annotation",
    [
        dict[str, int],
        set[int],
        bytes,
        int | None,
        tuple[int, str],
        tuple[list[int], list[int]],
        Literal["a", 1],
        np.ndarray,
        npt.NDArray[np.float32],
        Annotated[int, fg.ragged("tokens")],
        list[Any],
    ],
)
def test_what_a_stream_cannot_carry_is_refused(annotation: Any) -> None:
    with pytest.raises(GraphError, match="record type R, field 'x'"):
        declare("x", annotation, owner="R", optional=False)


def test_a_class_without_fields_of_its_own_is_no_record() -> None:
    assert Record.of(int) is None
    assert Record.of(list[int]) is None
    assert Record.of("Mixed") is None


@pytest.mark.parametrize(
    ("dtype", "dims", "message"),
    [
        ("float31", (), "unknown dtype 'float31'"),
        ("float32", (0,), "at least 1"),
        ("float32", (4, fg.ragged("rows")), "ragged dims come before"),
        ("float32", (True,), "a dim is"),
        ("float32", (1.5,), "a dim is"),
    ],
)
def test_a_tensor_type_that_makes_no_sense_is_refused(
    dtype: str, dims: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        fg.tensor(dtype, *dims)
