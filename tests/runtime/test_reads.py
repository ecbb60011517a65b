"""Columns that nobody can read are neither kept nor sent; every one that somebody can read is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import flowgraph as fg
from flowgraph.ir.graph import FunctionRef
from flowgraph.ir.plan import Plan, Task
from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.passes import compile_graph
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.reads import LOSS_MASK, TOKENS, columns_read
from flowgraph.runtime.stages.host import HostTask
from flowgraph.runtime.topology import Topology
from flowgraph.runtime.trainer import spec
from flowgraph.runtime.trainer.interface import UpdateOrder
from flowgraph.runtime.trainer.spec import TrainSpec
from tests.runs.running import TWO_CORES
from tests.runtime.stages.rig import drive, item
from tests.runtime.trainer import graphs

ROOT = Path(__file__).parents[2]

UNREAD = (
    Field(name="pixels", dtype="float32", dims=(Ragged("images"), Ragged("patches"), 4)),
    Field(name="scores", dtype="float32", dims=(Ragged("images"),)),
    Field(name="caption", dtype="str"),
    Field(name="words", dtype="str", dims=(Ragged("tokens"),)),
)
READ = (
    Field(name="ranks", dtype="int64", dims=(Ragged("tokens"), 2)),
    Field(name="centre", dtype="float32", dims=(2,)),
)
FILLED: Mapping[str, Any] = {
    "pixels": [np.ones((3, 4), np.float32)] * 2,
    "scores": [0.5, 1.5],
    "caption": "two",
    "centre": np.array([0.25, 0.5], np.float32),
}


def greedy_loss(outputs: Any, fields: Mapping[str, torch.Tensor]) -> Any:
    """Reads whatever can be read."""
    total = (outputs.logprobs * fields["loss_mask"]).sum()
    for name in fields:
        total = total + outputs.logprobs.sum() * fields[name].double().mean().float()
    return total, {"names": torch.tensor(float(len(list(fields))))}


def wide(plan: Plan, stream: str, *fields: Field) -> Plan:
    """The plan with more fields in a stream's records."""
    streams = tuple(
        replace(one, type=replace(one.type, fields=(*one.type.fields, *fields)))
        if one.name in (stream, "joined")
        else one
        for one in plan.graph.streams
    )
    return replace(plan, graph=replace(plan.graph, streams=streams))


def vision() -> Plan:
    loss = FunctionRef(module="tests.runtime.test_reads", qualname="greedy_loss")
    plan = graphs.vision_plan(loss)
    plan = wide(plan, "rows", *UNREAD, *READ)
    plan = wide(plan, "images", Field(name="path", dtype="str"))
    return wide(plan, "features", Field(name="sizes", dtype="int64"))


def filled(type: RecordType, batch: Batch) -> Batch:
    """The batch with the type's further fields."""
    rows = []
    for row in batch.to_rows():
        count = len(row.get("tokens", ()))
        own = {**FILLED, "words": ["w"] * count, "ranks": np.full((count, 2), count), "path": "p"}
        rows.append({"sizes": 1, **own, **row})
    return Batch.from_rows(type, rows)


def test_a_trainer_is_sent_what_a_loss_could_read_and_no_more() -> None:
    plan = vision()
    rows = columns_read(plan, "features"), columns_read(plan, "rows")
    assert rows[0] == ("sample", "item", "features")
    own = [field.name for field in (*graphs.ROW.fields, *READ)]
    # `images` is cut off in the task that makes the rows, and so is no reader of them
    assert rows[1] == tuple(own)


def test_a_module_is_sent_the_fields_that_it_is_applied_to() -> None:
    assert columns_read(vision(), "images") == ("sample", "item", "patches")


def test_host_stages_and_streams_without_readers_keep_everything() -> None:
    plan = vision()
    host = plan.task("host")
    watch = replace(host, name="watch", inputs=("rows",), outputs=())
    watched = replace(plan, tasks=(*plan.tasks, watch))
    everything = plan.graph.stream("rows").type.names
    assert columns_read(watched, "rows") == everything
    assert columns_read(plan, "joined") == plan.graph.stream("joined").type.names


def test_rows_without_tokens_or_a_module_without_named_inputs_keep_everything() -> None:
    plan = vision()
    bare = RecordType(fields=(graphs.ROW.fields[0], *UNREAD))
    streams = tuple(
        replace(one, type=bare) if one.name == "rows" else one for one in plan.graph.streams
    )
    stages = tuple(
        replace(one, attributes={}) if one.op == "apply" else one for one in plan.graph.stages
    )
    odd = replace(plan, graph=replace(plan.graph, streams=streams, stages=stages))
    for stream in ("rows", "images"):
        assert columns_read(odd, stream) == odd.graph.stream(stream).type.names


def trained(plan: Plan, inputs: Mapping[str, Sequence[Batch]]) -> tuple[torch.Tensor, Any, Any]:
    rank = graphs.rank_of(plan)
    given = {stream: list(batches) for stream, batches in inputs.items()}
    result = rank.train("train", graphs.item("train", given))
    rank.update(UpdateOrder(step=0, part=0, divisor=sum(result.weights.values())))
    return rank.flat_gradient(), result.sums, result.gradients


def test_training_on_the_columns_that_are_read_is_bit_for_bit_training_on_all() -> None:
    plan = vision()
    types = {one.name: one.type for one in plan.graph.streams}
    sizes = [[[2, 3], [1]], [[], [4]]]
    whole: dict[str, list[Batch]] = {"rows": [], "features": []}
    for unit, of in enumerate(sizes):
        first = 2 * unit
        rows = graphs.with_placeholders(unit, of, first=first)
        items = graphs.images(unit, of, first=first).to_rows()
        for one in items:
            values = np.arange(len(one["patches"]) * graphs.FEATURES, dtype=np.float32)
            one["features"] = np.sin(values).reshape(-1, graphs.FEATURES)
        whole["rows"].append(filled(types["rows"], rows))
        more = [{"sizes": 1, **one} for one in items]
        whole["features"].append(Batch.from_rows(types["features"], more))
    read = {
        stream: [batch.select(Topology(plan).columns(stream)) for batch in batches]
        for stream, batches in whole.items()
    }
    assert read["rows"][0].nbytes < whole["rows"][0].nbytes
    all_of, some = trained(plan, whole), trained(plan, read)
    assert torch.equal(all_of[0], some[0])
    assert all_of[0].abs().sum() > 0
    assert all_of[1] == some[1]
    assert all(
        a.equals(b)
        for stream in all_of[2]
        for a, b in zip(all_of[2][stream], some[2][stream], strict=True)
    )


def test_the_names_are_the_trainers() -> None:
    assert (TOKENS, LOSS_MASK) == (spec.TOKENS, spec.LOSS_MASK)


@pytest.mark.parametrize(
    "graph",
    ["examples/vlm_digits.py", "examples/marl_arithmetic.py", "tests/runs/graphs/poisoned.py"],
)
def test_every_field_that_a_plans_losses_see_is_sent(graph: str) -> None:
    plan = compile_graph(fg.load_graph(str(ROOT / graph), {}), TWO_CORES, None)
    for task in plan.tasks:
        if task.kind == "train":
            _sees(plan, task)


def _sees(plan: Plan, task: Task) -> None:
    resolved = TrainSpec.of(plan, task)
    sent = {stream: set(columns_read(plan, stream)) for stream in task.inputs}
    rows = set[str]().union(*(sent[one] for one in (resolved.samples, *resolved.beside)))
    assert resolved.token_fields | resolved.row_fields <= rows
    for stream in (resolved.samples, *resolved.beside):
        assert set(resolved.key) <= sent[stream]
    if resolved.features is not None:
        made = resolved.features
        assert {*made.key, made.item, made.field} <= sent[made.stream]


def test_a_host_task_gives_away_no_more_than_is_read() -> None:
    graph = str(ROOT / "examples/vlm_digits.py")
    plan = compile_graph(fg.load_graph(graph, {}), TWO_CORES, None)
    task = next(task for task in plan.tasks if task.kind == "host")
    (result,) = drive(HostTask(plan, task, exact=False, seed=0), item((0, 1, 2), (3,)))
    for stream in task.outputs:
        for batch in result.made[stream]:
            assert tuple(batch.columns) == columns_read(plan, stream)


def test_images_of_the_digits_example_stay_with_the_encoder() -> None:
    graph = str(ROOT / "examples/vlm_digits.py")
    plan = compile_graph(fg.load_graph(graph, {}), TWO_CORES, None)
    by_stream = {
        stream: columns_read(plan, stream) for task in plan.tasks for stream in task.outputs
    }
    with_pixels = {stream for stream, columns in by_stream.items() if "patches" in columns}
    assert by_stream["samples"] == ("sample", "tokens", "loss_mask", "kind")
    assert "samples" not in with_pixels
    assert len(with_pixels) == 1
