"""Unnest, group, join and credit over whole batches."""

from typing import Any

import numpy as np
import pytest

from flowgraph.ir.errors import InternalError
from flowgraph.ir.graph import Stage
from flowgraph.ir.types import (
    AGENT_ROW,
    CALL,
    ITEM,
    SAMPLE,
    TRAJECTORY,
    Field,
    Ragged,
    RecordType,
)
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.cells import Cells
from flowgraph.runtime.failures import StageFailed
from flowgraph.runtime.loose import LooseBatch, joined
from flowgraph.runtime.stages.host import HostTask
from flowgraph.runtime.stages.reshape import group, group_offsets, join, unnest
from tests.runtime.stages.rig import after, drive, host_of, item, plan, source

PATCHES = (Ragged("images"), Ragged("patches"), 2)
SAMPLES = RecordType(
    fields=(
        SAMPLE,
        Field(name="label", dtype="str"),
        Field(name="images", dtype="float32", dims=PATCHES),
        Field(name="widths", dtype="int64", dims=(Ragged("images"),)),
        Field(name="names", dtype="str", dims=(Ragged("images"),)),
    )
)
ITEMS = RecordType(
    fields=(
        SAMPLE,
        ITEM,
        Field(name="images", dtype="float32", dims=PATCHES[1:]),
        Field(name="widths", dtype="int64"),
        Field(name="names", dtype="str"),
    ),
    key=("sample", "item"),
)


def sample(id: int, images: int) -> dict[str, Any]:
    return {
        "sample": id,
        "label": f"sample {id}",
        "images": [np.full((i + 1, 2), id + i / 10, np.float32) for i in range(images)],
        "widths": [10 * id + i for i in range(images)],
        "names": [f"{id}.{i}" for i in range(images)],
    }


SAMPLE_ROWS = [sample(3, 2), sample(5, 0), sample(6, 3)]
SAMPLE_BATCH = Batch.from_rows(SAMPLES, SAMPLE_ROWS)


def test_rows_that_are_not_joined_are_unnested_where_they_are() -> None:
    loose = LooseBatch.of(SAMPLES, SAMPLE_ROWS)
    items = unnest(loose, SAMPLES, ITEMS, "images")
    assert joined(items).equals(joined(unnest(SAMPLE_BATCH, SAMPLES, ITEMS, "images")))
    before, after = loose.columns["images"], items.columns["images"]
    assert isinstance(before, Cells)
    assert isinstance(after, Cells)
    assert all(a is b for a, b in zip(before.cells, after.cells, strict=True))


def test_unnest_makes_a_row_of_each_entry_and_none_of_an_empty_sample() -> None:
    rows = joined(unnest(SAMPLE_BATCH, SAMPLES, ITEMS, "images")).to_rows()
    assert [(row["sample"], row["item"]) for row in rows] == [
        (3, 0),
        (3, 1),
        (6, 0),
        (6, 1),
        (6, 2),
    ]
    assert [row["widths"] for row in rows] == [30, 31, 60, 61, 62]
    assert [row["names"] for row in rows] == ["3.0", "3.1", "6.0", "6.1", "6.2"]
    assert [row["images"].shape for row in rows] == [(1, 2), (2, 2), (1, 2), (2, 2), (3, 2)]


def test_unnest_repeats_a_field_that_lies_outside_the_dim() -> None:
    wanted = RecordType(fields=(SAMPLE, ITEM, SAMPLES.fields[1]), key=ITEMS.key)
    rows = joined(unnest(SAMPLE_BATCH, SAMPLES, wanted, "images")).to_rows()
    assert [row["label"] for row in rows] == ["sample 3"] * 2 + ["sample 6"] * 3


def test_join_puts_items_back_under_their_sample_whatever_order_they_come_in() -> None:
    samples = Batch.from_rows(SAMPLES, SAMPLE_ROWS)
    items = joined(unnest(samples, SAMPLES, ITEMS, "images"))
    bare = RecordType(fields=SAMPLES.fields[:2])
    shuffled = items.take([4, 1, 3, 0, 2])
    again = join([samples.select(bare.names), shuffled], [bare, ITEMS], SAMPLES)
    assert again.equals(samples)


def test_join_of_an_unknown_sample_is_our_bug() -> None:
    samples = Batch.from_rows(SAMPLES, SAMPLE_ROWS)
    items = joined(unnest(samples, SAMPLES, ITEMS, "images"))
    bare = RecordType(fields=SAMPLES.fields[:2])
    with pytest.raises(InternalError, match=r"an item of \{'sample': 6\} has no"):
        join([samples.slice(0, 2).select(bare.names), items], [bare, ITEMS], SAMPLES)


def test_join_of_one_key_matches_row_by_row() -> None:
    left = RecordType(fields=(SAMPLE, Field(name="a", dtype="int64")))
    right = RecordType(fields=(SAMPLE, Field(name="b", dtype="int64")))
    both = RecordType(fields=(*left.fields, right.fields[1]))
    a = Batch.from_rows(left, [{"sample": i, "a": i} for i in (4, 2)])
    b = Batch.from_rows(right, [{"sample": i, "b": -i} for i in (2, 4)])
    assert [row["b"] for row in join([a, b], [left, right], both).to_rows()] == [-4, -2]
    assert [row["b"] for row in join([a.slice(1, 2), b], [left, right], both).to_rows()] == [-2]
    with pytest.raises(ValueError, match="sample 2 has no record to join with"):
        join([a, b.slice(1, 2)], [left, right], both)


def rows_of(*keys: tuple[int, int, int], rewards: list[float] | None = None) -> Batch:
    given = rewards or [float(i) for i in range(len(keys))]
    type = RecordType(
        fields=(SAMPLE, TRAJECTORY, CALL, Field(name="reward", dtype="float32")),
        key=("sample", "trajectory", "call"),
    )
    return Batch.from_rows(
        type,
        [
            {"sample": s, "trajectory": t, "call": c, "reward": r}
            for (s, t, c), r in zip(keys, given, strict=True)
        ],
    )


def test_group_makes_each_group_one_run_and_keeps_the_order_within() -> None:
    batch = rows_of((1, 0, 0), (0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 1))
    grouped = group(batch, ("sample", "call"), 0)
    assert [(row["sample"], row["call"]) for row in grouped.to_rows()] == [
        (0, 0),
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert group_offsets(grouped, ("sample", "call")).tolist() == [0, 2, 3, 4, 5]
    assert group(batch.slice(0, 0), ("sample",), 4).rows == 0


def test_groups_of_a_size_are_consecutive_rows_of_one_key() -> None:
    batch = rows_of((0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0), (7, 0, 0), (7, 1, 0))
    assert group(batch, ("sample",), 2).equals(batch)
    assert group_offsets(batch, ("sample",), 2).tolist() == [0, 2, 4, 6]
    assert group_offsets(batch, ("sample",), 3).tolist() == [0, 3, 4, 6]


def test_a_key_whose_rows_the_size_does_not_divide_is_named() -> None:
    batch = rows_of((0, 0, 0), (0, 1, 0), (7, 0, 0), (7, 1, 0), (7, 2, 0))
    with pytest.raises(ValueError, match="sample 7 has 3 rows, which groups of 2 do not divide"):
        group(batch, ("sample",), 2)


def grouped_task(size: int) -> HostTask:
    tasks = source()
    stage = Stage(
        name="groups",
        op="group",
        inputs=("tasks",),
        outputs=("groups",),
        attributes={"by": ("sample",), "size": size},
    )
    return host_of(plan(tasks, stage, types={"tasks": AGENT_ROW, "groups": AGENT_ROW}), "groups")


def test_the_size_of_a_group_does_not_bind_an_evaluation_which_plays_once() -> None:
    batch = rows_of((0, 0, 0))
    with pytest.raises(StageFailed, match="sample 0 has 1 rows, which groups of 2 do not divide"):
        drive(grouped_task(2), item((0,), tasks=(batch,)))
    (result,) = drive(grouped_task(2), item((0,), variant=1, tasks=(batch,)))
    assert result.outputs["groups"][0].equals(batch)


def credited(
    batch: Batch,
    by: tuple[str, ...],
    *units: tuple[int, ...],
    name: str = "mean_baseline",
    size: int = 0,
) -> list[list[float]]:
    tasks = source()
    stage = after(tasks, "map", name, credit=True, group=by, size=size)
    task = host_of(plan(tasks, stage, types={"tasks": AGENT_ROW, name: AGENT_ROW}), name)
    (result,) = drive(task, item(*units, tasks=(batch,) * len(units)))
    return [unit["advantage"].values.tolist() for unit in result.outputs[name]]


def test_credit_compares_the_rows_of_a_group_within_a_sample() -> None:
    batch = rows_of((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), rewards=[1, 3, 10, 10])
    assert credited(batch, ("sample",), (0, 1)) == [[-1, 1, 0, 0]]


def test_credit_finds_groups_that_are_not_runs() -> None:
    batch = rows_of((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), rewards=[1, 10, 3, 30])
    assert credited(batch, ("sample", "call"), (0,)) == [[-1, -10, 1, 10]]


def test_credit_compares_the_rows_of_a_group_of_fixed_size() -> None:
    keys = [(0, trajectory, 0) for trajectory in range(4)]
    batch = rows_of(*keys, rewards=[1, 3, 10, 20])
    assert credited(batch, ("sample",), (0,), size=2) == [[-1, 1, -5, 5]]


def test_credit_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(StageFailed, match=r"advantages of shape \[1\] for 2 rows"):
        credited(rows_of((0, 0, 0), (0, 1, 0)), ("sample",), (0,), name="too_few")


def test_credit_of_no_rows_calls_nobody() -> None:
    assert credited(rows_of((0, 0, 0)), ("sample",), (5,), name="too_few") == [[]]


def test_an_operation_of_a_trainer_does_not_run_in_a_host_task() -> None:
    tasks = source()
    stage = after(tasks, "pack", "doubled")
    with pytest.raises(InternalError, match="stage 'doubled': pack does not run in a host task"):
        host_of(plan(tasks, stage), "doubled")
