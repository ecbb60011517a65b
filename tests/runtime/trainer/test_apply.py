"""Modules applied for their outputs: fixed-dim ones, and decoders that score rows."""

import numpy as np
import pytest
import torch

from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import FunctionRef, Graph, Module, Stage, Stream
from flowgraph.ir.plan import Plan, Task
from flowgraph.ir.types import Field, Ragged, RecordType
from flowgraph.runtime.batch import Batch
from flowgraph.runtime.failures import StageFailed
from tests.runtime.trainer.graphs import (
    ROW,
    decoder,
    difference,
    gradient_of,
    item,
    plan_of,
    rank_of,
    rows,
    text_plan,
    toy,
    train_stage,
)

FIXED = RecordType(
    fields=(
        Field(name="sample", dtype="int64"),
        Field(name="patch", dtype="float32", dims=(4,)),
    )
)
OUTPUT = Field(name="out", dtype="float32", dims=(6,))
SCORES = RecordType(
    fields=(
        Field(name="sample", dtype="int64"),
        Field(name="reference_logprobs", dtype="float32", dims=(Ragged("tokens"),)),
    )
)
REFERENCE = Module(name="ref", factory=decoder(), trainable=False)
PULLED = FunctionRef(
    module="flowgraph.algorithms.grpo", qualname="loss", params={"kl": 0.5, "entropy": 0.1}
)


def applied_plan(factory: FunctionRef) -> Plan:
    """records → score."""
    score = Stage(
        name="score",
        op="apply",
        inputs=("records",),
        outputs=("scores",),
        modules=("m",),
        attributes={"inputs": ("patch",), "output": "out"},
    )
    graph = Graph(
        name="applied",
        modules=(Module(name="m", factory=factory, trainable=False),),
        stages=(Stage(name="tasks", op="source", outputs=("records",)), score),
        streams=(
            Stream(name="records", producer="tasks", type=FIXED),
            Stream(
                name="scores",
                producer="score",
                type=RecordType(fields=(*FIXED.fields[:1], OUTPUT)),
            ),
        ),
    )
    task = Task(
        name="score", kind="apply", stages=("score",), group="m.gang",
        inputs=("records",), outputs=("scores",),
    )  # fmt: skip
    return plan_of(graph, task)


def beside_plan() -> Plan:
    """rows → score by a reference → join(rows, scores) → learn."""
    score = Stage(
        name="score",
        op="apply",
        inputs=("rows",),
        outputs=("scores",),
        modules=("ref",),
        attributes={"inputs": ("tokens", "loss_mask"), "output": "reference_logprobs"},
    )
    join = Stage(name="join", op="join", inputs=("rows", "scores"), outputs=("joined",))
    learn = train_stage(PULLED, ("lm",), stream="joined")
    graph = Graph(
        name="beside",
        modules=(Module(name="lm", factory=decoder()), REFERENCE),
        stages=(Stage(name="tasks", op="source", outputs=("rows",)), score, join, learn),
        streams=(
            Stream(name="rows", producer="tasks", type=ROW),
            Stream(name="scores", producer="score", type=SCORES),
            Stream(name="joined", producer="join", type=ROW),
        ),
    )
    return plan_of(
        graph,
        Task(
            name="score", kind="apply", stages=("score",), group="ref.gang",
            inputs=("rows",), outputs=("scores",),
        ),
        Task(
            name="train", kind="train", stages=("join", "learn"), group="lm.gang",
            inputs=("rows", "scores"),
        ),
    )  # fmt: skip


def patches(count: int) -> Batch:
    draw = np.random.default_rng(count)
    records = [{"sample": n, "patch": draw.normal(size=4)} for n in range(count)]
    return Batch.from_rows(FIXED, records)


def test_a_module_without_encode_is_called_with_its_inputs_as_tensors() -> None:
    rank = rank_of(applied_plan(toy("affine")), "m")
    parts = [patches(3), patches(0), patches(2)]
    outputs = rank.apply("score", item("score", {"records": parts}))["scores"]
    for part, output in zip(parts, outputs, strict=True):
        assert list(output.columns) == ["sample", "out"]
        expected = rank.module(torch.from_numpy(part["patch"].values.copy()))
        assert np.allclose(output["out"].values, expected.numpy(), atol=1e-6)


def test_an_output_that_does_not_fit_its_records_is_named() -> None:
    rank = rank_of(applied_plan(toy("flattening")), "m")
    with pytest.raises(StageFailed, match="stage 'score': expects 3 output rows, one a record"):
        rank.apply("score", item("score", {"records": [patches(3)]}))


def test_a_reference_scores_rows_alike_in_a_stage_and_in_the_trainer() -> None:
    batch = rows(0, [7, 9, 4])
    beside = beside_plan()
    scores = rank_of(beside, "ref").apply("score", item("score", {"rows": [batch]}))
    lm = rank_of(beside)
    apart = lm.train("train", item("train", {"rows": [batch], **scores}))
    within = rank_of(text_plan(PULLED, reference="ref", modules=(REFERENCE,)))
    together = within.train("train", item("train", {"rows": [batch]}))
    assert apart.sums["reference_kl"] > 1.0
    assert together.sums["reference_kl"] == pytest.approx(apart.sums["reference_kl"], rel=1e-5)
    assert difference(gradient_of(within, [together]), gradient_of(lm, [apart])) < 1e-5
    assert not rank_of(beside, "ref").trained


def test_records_beside_are_matched_by_key_and_a_missing_one_is_named() -> None:
    batch = rows(0, [7, 9, 4], first=30)
    plan = beside_plan()
    scores = rank_of(plan, "ref").apply("score", item("score", {"rows": [batch]}))["scores"][0]
    losses = [
        rank_of(plan).train("train", item("train", {"rows": [batch], "scores": [other]})).sums
        for other in (scores, scores.take([2, 0, 1]))
    ]
    assert losses[0] == losses[1]
    with pytest.raises(
        StageFailed, match="stage 'join', sample 31: has no record in 'scores' to join"
    ):
        rank_of(plan).train(
            "train", item("train", {"rows": [batch], "scores": [scores.take([0, 2])]})
        )


def test_a_reference_that_is_no_decoder_is_refused() -> None:
    affine = Module(name="ref", factory=toy("affine"), trainable=False)
    rank = rank_of(text_plan(PULLED, reference="ref", modules=(affine,)))
    with pytest.raises(GraphError, match="Affine gives no token log-probs"):
        rank.train("train", item("train", {"rows": [rows(0, [5])]}))


def test_a_module_that_no_gradient_reaches_is_refused() -> None:
    plan = text_plan(modules=(Module(name="vit", factory=toy("affine")),), trains=("lm", "vit"))
    with pytest.raises(GraphError, match="stage 'learn' trains it, but joins none of its outputs"):
        rank_of(plan, "vit")
