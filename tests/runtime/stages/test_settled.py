"""A record is what it was when the user's function returned it, whatever happens to it afterwards;
and what nobody else can change goes to the pool from where it is."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

from flowgraph.ir.graph import Stage
from flowgraph.ir.types import SAMPLE, Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.loose import LooseBatch, Made, joined
from flowgraph.runtime.pool import Reader, Segment
from flowgraph.runtime.stages.settled import Wanted, settled
from tests.runtime.record_strategies import typed_rows, unhurried
from tests.runtime.stages.rig import after, drive, host, item, plan, run, source

HERE = "tests.runtime.stages.test_settled"
VALUES = RecordType(fields=(SAMPLE, Field(name="values", dtype="int64", dims=(Ragged("n"),))))
NESTED = RecordType(
    fields=(SAMPLE, Field(name="values", dtype="int64", dims=(Ragged("m"), Ragged("n"))))
)
FIXED = RecordType(fields=(SAMPLE, Field(name="values", dtype="int64", dims=(3,))))


@dataclass
class Record:
    values: Any


class Reused:
    """One piece of memory of a kind, filled anew for each record."""

    def __init__(self) -> None:
        self.array = np.zeros(3, np.int64)
        self.list = [0, 0, 0]
        self.lists = [[0, 0, 0]]
        self.tuple = (np.zeros(3, np.int64),)
        self.buffer = array("q", [0, 0, 0])
        self.record: dict[str, Any] = {"values": np.zeros(3, np.int64)}
        self.object = Record(np.zeros(3, np.int64))

    def filled(self, kind: str, n: int) -> Any:
        """A record whose values are n, n, n."""
        self.list[:] = self.lists[0][:] = [n] * 3
        for memory in (self.array, self.tuple[0], self.record["values"], self.object.values):
            memory[:] = n
        self.buffer[:] = array("q", [n] * 3)
        match kind:
            case "array":
                return {"values": self.array}
            case "view":
                return {"values": self.array[:3]}
            case "read-only view":
                view = self.array[:3]
                view.flags.writeable = False
                return {"values": view}
            case "subclass":
                return {"values": self.array.view(np.recarray)}
            case "tensor":
                return {"values": torch.from_numpy(self.array)}
            case "buffer":
                return {"values": self.buffer}
            case "memoryview":
                return {"values": memoryview(self.buffer)}
            case "list":
                return {"values": self.list}
            case "nested lists":
                return {"values": self.lists}
            case "tuple of arrays":
                return {"values": self.tuple}
            case "list of scalar tensors":
                return {"values": list(torch.from_numpy(self.array))}
            case "record":
                return self.record
            case "object":
                return self.object
            case _:
                raise AssertionError(kind)


KINDS = (
    "array",
    "view",
    "read-only view",
    "subclass",
    "tensor",
    "buffer",
    "memoryview",
    "list",
    "nested lists",
    "tuple of arrays",
    "list of scalar tensors",
    "record",
    "object",
)
REUSED = Reused()


def refill(task: Any, *, kind: str) -> Any:
    return REUSED.filled(kind, task.number)


def refill_columns(batch: dict[str, Any]) -> dict[str, Any]:
    count = len(batch["number"])
    COLUMNS[:count] = batch["number"][:, None]
    return {"values": COLUMNS[:count]}


COLUMNS = np.zeros((8, 3), np.int64)


class Refilling:
    """A sequence that reads each record into the same memory."""

    def __init__(self, size: int, kind: str) -> None:
        self._size, self._kind, self._memory = size, kind, Reused()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, n: int) -> Any:
        return self._memory.filled(self._kind, n)


class Stream:
    """An iterable that does."""

    def __init__(self, kind: str) -> None:
        self._kind, self._memory, self._next = kind, Reused(), 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self._next += 1
            yield self._memory.filled(self._kind, self._next - 1)

    def state_dict(self) -> int:
        return self._next

    def load_state_dict(self, state: int) -> None:
        self._next = state


def refilling(size: int, kind: str) -> Refilling:
    return Refilling(size, kind)


def stream(size: int, kind: str) -> Stream:
    return Stream(kind)


def mine(stage: Stage, **params: Any) -> Stage:
    """The stage with the function of that name in this file."""
    assert stage.function is not None
    return replace(stage, function=replace(stage.function, module=HERE, params=params))


def mapped(function: str, type: RecordType = VALUES, **more: Any) -> Any:
    """A task whose last stage is this function."""
    tasks = source()
    params = more.pop("params", {})
    stage = mine(after(tasks, "map", function, name="made", **more), **params)
    return host(plan(tasks, stage, types={"made": type}), only=("tasks", "made"))


def firsts(made: Made) -> list[int]:
    """The first number of each row."""
    rows = [row["values"] for row in joined(made).to_rows()]
    return [int((row[0] if isinstance(row, list) else row)[0]) for row in rows]


def type_of(kind: str) -> RecordType:
    return NESTED if kind in ("nested lists", "tuple of arrays") else VALUES


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_may_return_the_same_memory_for_every_record(kind: str) -> None:
    task = mapped("refill", type_of(kind), params={"kind": kind})
    result = run(task, (0, 1, 2), (3, 4))
    assert [firsts(batch) for batch in result.made["made"]] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ["refilling", "stream"])
def test_a_source_may_give_the_same_memory_for_every_record(function: str, kind: str) -> None:
    tasks = mine(source("made", function=function), size=8, kind=kind)
    task = host(plan(tasks, types={"made": type_of(kind)}))
    result = run(task, (0, 1, 2), (3, 4))
    assert [firsts(batch) for batch in result.made["made"]] == [[0, 1, 2], [3, 4]]


def test_a_batched_map_may_return_the_same_memory_for_every_batch() -> None:
    task = mapped("refill_columns", FIXED, batched=True)
    result = run(task, (0, 1, 2), (3, 4))
    assert [firsts(batch) for batch in result.made["made"]] == [[0, 1, 2], [3, 4]]


BFLOATS = torch.zeros(3, dtype=torch.bfloat16)


def refill_bfloats(task: Any) -> Any:
    return {"values": BFLOATS.fill_(task.number)}


def test_bfloat16_tensors_may_be_the_same_memory_too() -> None:
    type = RecordType(fields=(SAMPLE, replace(VALUES.fields[1], dtype="bfloat16")))
    (made,) = run(mapped("refill_bfloats", type), (1, 2, 3)).made["made"]
    assert firsts(made) == [1, 2, 3]


RETURNED: list[Any] = []


def spoils(task: Any) -> Any:
    """Changes everything that it has returned before."""
    for record in RETURNED:
        record["values"][:] = [-1] * 3
        record["values"] = None
    RETURNED[:] = [{"values": [task.number] * 3 if task.number % 2 else np.full(3, task.number)}]
    return RETURNED[0]


def test_what_a_function_keeps_and_changes_was_taken_as_it_was_returned() -> None:
    RETURNED.clear()
    made = run(mapped("spoils"), (0, 1, 2, 3)).made["made"][0]
    for record in RETURNED:
        record["values"][:] = [-1] * 3
    assert firsts(made) == [0, 1, 2, 3]


def test_nothing_changes_while_other_items_run_before_the_pool_has_room() -> None:
    task = mapped("refill", params={"kind": "array"})
    first, second = drive(task, item((0, 1)), item((5, 6, 7)))
    run(task, (3, 4))
    assert [firsts(r.made["made"][0]) for r in (first, second)] == [[0, 1], [5, 6, 7]]


WHERE: list[int] = []


def fresh(task: Any) -> Any:
    return Record(noted(np.full(3, task.number)))


def fresh_images(task: Any) -> Any:
    return {"values": [noted(np.full(n + 1, task.number)) for n in range(2)]}


def fresh_columns(batch: dict[str, Any]) -> Any:
    return {"values": noted(np.repeat(batch["number"][:, None], 3, axis=1))}


def noted(values: Any) -> Any:
    WHERE.append(values.ctypes.data)
    return values


def places(made: Made) -> list[int]:
    part = made.columns["values"]
    assert isinstance(part, Cells)
    return [cell.ctypes.data for cell in part.cells]


@pytest.mark.parametrize(
    ("function", "type"),
    [("fresh", VALUES), ("fresh_images", NESTED), ("fresh_columns", FIXED)],
)
def test_a_fresh_array_goes_to_the_pool_from_where_the_function_made_it(
    function: str, type: RecordType
) -> None:
    WHERE.clear()
    task = mapped(function, type, batched=function.endswith("columns"))
    (made,) = run(task, (3, 4)).made["made"]
    assert isinstance(made, LooseBatch)
    assert places(made) == WHERE
    segment = Segment("worker-0", 1 << 16)
    handle = segment.try_write(made)
    assert handle is not None
    assert firsts(Reader().open(handle)) == [3, 4]


def passes_on(task: Any) -> Any:
    return {"values": task.digits}


def passes_columns_on(batch: dict[str, Any]) -> Any:
    return {"values": batch["digits"], "values.offsets": batch["digits.offsets"]}


@pytest.mark.parametrize("function", ["passes_on", "passes_columns_on"])
def test_a_field_that_is_passed_on_is_not_copied_on_its_way(function: str) -> None:
    tasks = source()
    stage = mine(after(tasks, "map", function, name="made", batched="columns" in function))
    result = run(host(plan(tasks, stage, types={"made": VALUES})), (2, 3))
    (before,), (after_it,) = result.made["tasks"], result.made["made"]
    part = after_it.columns["values"]
    assert isinstance(before, Batch)
    assert isinstance(part, Cells)
    assert all(np.shares_memory(cell, before["digits"].values) for cell in part.cells)
    assert joined(after_it)["values"].equals(before["digits"])


def test_a_record_that_its_function_keeps_is_copied_though_it_is_fresh() -> None:
    kept: list[Any] = []

    def given() -> Any:
        kept.append({"values": np.ones(3), "parts": [np.ones(2)]})
        return kept[-1]

    found = settled(Wanted(("values", "parts")), given())
    assert found["values"] is not kept[0]["values"]
    assert found["parts"][0] is not kept[0]["parts"][0]


def test_a_list_that_its_function_keeps_is_copied_with_what_is_in_it() -> None:
    parts = [np.ones(2)]
    found = settled(Wanted(("parts",)), {"parts": parts})
    assert found["parts"][0] is not parts[0]


def test_a_record_without_a_field_is_left_to_be_refused() -> None:
    record = {"values": 1}
    assert settled(Wanted(("values", "missing")), record) is record


def with_gradient(task: Any) -> Any:
    return {"values": torch.ones(3, requires_grad=task.number == 2)}


def test_a_tensor_without_memory_here_names_its_sample_before_it_reaches_the_pool() -> None:
    type = RecordType(fields=(SAMPLE, replace(VALUES.fields[1], dtype="float32")))
    with pytest.raises(StageFailed) as caught:
        run(mapped("with_gradient", type), (1, 2, 3))
    assert caught.value.sample == 2
    assert "field 'values' expects an array, got a tensor that needs a gradient" in str(
        caught.value
    )


def test_a_stream_that_a_stage_reads_and_others_too_is_the_same_for_both() -> None:
    tasks = source()
    stage = mine(after(tasks, "map", "fresh", name="made"))
    result = run(host(plan(tasks, stage, types={"made": VALUES})), (1, 2))
    assert isinstance(result.made["tasks"][0], Batch)
    assert firsts(result.made["made"][0]) == result.made["tasks"][0]["number"].values.tolist()


@unhurried
@given(typed_rows())
def test_settled_records_are_the_same_records(
    case: tuple[RecordType, list[dict[str, Any]]],
) -> None:
    type, rows = case
    taken = LooseBatch.of(type, [settled(Wanted.of(type), row) for row in rows])
    assert joined(taken).equals(Batch.from_rows(type, rows))
