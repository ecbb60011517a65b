"""Train stages: credit, losses, optimizers, what they evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import flowgraph as fg
from flowgraph.ir.errors import GraphError


@dataclass
class Text:
    tokens: list[int]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]


@dataclass
class Judged:
    tokens: list[int]
    loss_mask: Annotated[list[float], fg.ragged("tokens")]
    logprobs: Annotated[list[float], fg.ragged("tokens")]
    reward: float


@dataclass
class Credited(Judged):
    advantage: float


def texts(*, split: str = "train") -> Sequence[Text]:
    return []


def judge(text: Text) -> Judged:
    return Judged(text.tokens, text.loss_mask, [], 1.0)


def credit(text: Text) -> Credited:
    return Credited(text.tokens, text.loss_mask, [], 1.0, 0.5)


def my_loss(outputs: Any, fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    return -(outputs.logprobs * fields["loss_mask"]).sum(), {}


def my_advantages(rewards: Any, offsets: Any, *, scale: float) -> Any:
    return rewards * scale


def exact_match(outputs: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {}


LM = fg.model(fg.models.decoder, vocab=20, layers=1, width=16, heads=2, max_length=64)
ADAM = fg.adam(1e-3)


@pytest.fixture
def g() -> fg.Graph:
    return fg.Graph("g")


def test_credit_is_a_stage_of_its_own_over_the_groups_that_were_declared(g: fg.Graph) -> None:
    rows = g.source("texts", texts).map(judge).group(by="task")
    rows.train(g.module("lm", LM), loss=fg.grpo(scale_by_std=False), batch=4, optimizer=ADAM)
    graph = g.ir()
    stage = graph.stage("train-lm.credit")
    assert stage.inputs == (rows.name,)
    assert stage.attributes == {"credit": True, "group": ("sample",)}
    assert stage.function is not None
    assert str(stage.function) == "flowgraph.algorithms.grpo:advantages"
    assert stage.function.params == {"scale_by_std": False}
    assert str(graph.stream("train-lm.credit").type.field("advantage")) == "advantage: float32"
    assert graph.stage("train-lm").inputs == ("train-lm.credit",)


def test_credit_comes_before_packs_and_joins_and_its_field_goes_through_them(
    g: fg.Graph,
) -> None:
    rows = g.source("texts", texts).map(judge).group(by="task", name="groups")
    scores = rows.apply(
        g.module("scorer", LM, trainable=False),
        inputs=["tokens"],
        output="score",
        type=fg.tensor("float32"),
    )
    packed = rows.join(scores, name="joined").pack(tokens=64, name="packed")
    packed.train(g.module("lm", LM), loss=fg.rloo(), batch=4, optimizer=ADAM)
    graph = g.ir()
    assert [stage.name for stage in graph.stages] == [
        "texts", "judge", "groups", "scorer-apply", "train-lm.credit", "joined", "packed",
        "train-lm",
    ]  # fmt: skip
    assert graph.stage("joined").inputs == ("train-lm.credit", "scorer-apply")
    assert graph.stage("train-lm").inputs == ("packed",)
    for stream in ("train-lm.credit", "joined", "packed"):
        assert graph.stream(stream).type.field("advantage"), stream
    assert graph.stream("groups").type.field("advantage") is None


def test_credit_that_the_user_gave_is_kept(g: fg.Graph) -> None:
    rows = g.source("texts", texts).map(credit)
    rows.train(g.module("lm", LM), loss=fg.grpo(), batch=4, optimizer=ADAM)
    assert [stage.name for stage in g.ir().stages] == ["texts", "credit", "train-lm"]


def test_a_plain_function_is_a_loss(g: fg.Graph) -> None:
    g.source("texts", texts).train(g.module("lm", LM), loss=my_loss, batch=4, optimizer=ADAM)
    function = g.ir().stage("train-lm").function
    assert function is not None
    assert function.qualname == "my_loss"
    assert function.path == "tests/dsl/test_training.py"


def test_an_algorithm_of_the_users_names_its_own_functions(g: fg.Graph) -> None:
    mine = fg.Algorithm(
        name="mine",
        loss=f"{__name__}:my_loss",
        credit=f"{__name__}:my_advantages",
        credit_params={"scale": 2.0},
        needs=("advantage",),
    )
    rows = g.source("texts", texts).map(judge).group()
    rows.train(g.module("lm", LM), loss=mine, batch=4, optimizer=ADAM)
    function = g.ir().stage("train-lm.credit").function
    assert function is not None
    assert (function.qualname, function.params) == ("my_advantages", {"scale": 2.0})


def test_a_reference_is_a_frozen_module_of_the_graph(g: fg.Graph) -> None:
    rows = g.source("texts", texts).map(judge).group()
    lm, frozen = g.module("lm", LM), g.module("frozen", LM, trainable=False)
    with pytest.raises(GraphError, match="the reference 'lm' must stay as it is"):
        rows.train(lm, loss=fg.grpo(kl=0.1), reference=lm, batch=4, optimizer=ADAM)
    with pytest.raises(GraphError, match="grpo reads no reference"):
        rows.train(lm, loss=fg.grpo(), reference=frozen, batch=4, optimizer=ADAM)
    rows.train(lm, loss=fg.grpo(kl=0.1), reference=frozen, batch=4, optimizer=ADAM)
    attributes = g.ir().stage("train-lm").attributes
    assert attributes["reference"] == "frozen"
    assert attributes["needs"] == ("advantage", "behaviour_logprobs", "reference_logprobs")


def test_optimizers_and_schedules_are_plain_data(g: fg.Graph) -> None:
    g.source("texts", texts).train(
        g.module("lm", LM),
        loss=fg.token_cross_entropy(),
        batch=8,
        updates=2,
        micro_batch=fg.tokens(128),
        optimizer=fg.adamw(1e-3, betas=(0.9, 0.95)),
        schedule=fg.linear_decay(last=0.4, warmup=3),
        clip=0,
    )
    attributes = g.ir().stage("train-lm").attributes
    assert attributes["optimizer"] == {
        "name": "adamw",
        "lr": 1e-3,
        "betas": (0.9, 0.95),
        "eps": 1e-8,
        "weight_decay": 0.01,
    }
    assert attributes["schedule"] == {"name": "linear_decay", "last": 0.4, "warmup": 3}
    assert (attributes["micro_batch"], attributes["clip"], attributes["updates"]) == (128, 0.0, 2)
    assert fg.sgd(0.1, momentum=0.9).data()["momentum"] == 0.9
    assert fg.constant().data() == {"name": "constant", "warmup": 0}


@pytest.mark.parametrize(
    "make",
    [
        lambda: fg.adamw(0),
        lambda: fg.adam(float("inf")),
        lambda: fg.adam(1e-3, betas=(0.9, 1.0)),
        lambda: fg.sgd(0.1, momentum=-0.1),
        lambda: fg.linear_decay(last=1.5),
        lambda: fg.linear_decay(last=0),
        lambda: fg.constant(warmup=-1),
        lambda: fg.tokens(0),
        lambda: fg.tokens(True),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any) -> None:
    with pytest.raises(GraphError, match="expects a"):
        make()


def test_an_evaluation_takes_the_only_train_stage_or_the_one_that_is_named(g: fg.Graph) -> None:
    rows = g.source("texts", texts)
    loss = fg.token_cross_entropy()
    first = rows.train(g.module("a", LM), loss=loss, batch=4, optimizer=ADAM)
    g.evaluate("only", exact_match, source=texts, split="test", every=10, at_start=False)
    rows.train(g.module("b", LM), loss=loss, batch=4, optimizer=ADAM)
    with pytest.raises(GraphError, match="there are several train stages"):
        g.evaluate("which", exact_match)
    g.evaluate("first", exact_match, of=first)
    with pytest.raises(GraphError, match="split given, but no source that would take it"):
        g.evaluate("lost", exact_match, of=first, split="test")
    graph = g.ir()
    only, named = graph.stage("only").attributes, graph.stage("first").attributes
    assert (only["of"], only["every"], only["at_start"]) == ("train-a", 10, False)
    assert only["source"]["params"] == {"split": "test"}
    assert (named["of"], named["source"]) == ("train-a", {})


def test_a_group_size_that_divides_the_rows_of_a_step_is_taken(g: fg.Graph) -> None:
    rows = g.source("texts", texts).map(judge).group(size=4)
    lm = g.module("lm", LM)
    with pytest.raises(GraphError, match=r"batch 6 x 1 a sample = 6 = 1 x 4 \+ 2"):
        rows.train(lm, loss=fg.grpo(), batch=6, optimizer=ADAM)
    rows.train(lm, loss=fg.grpo(), batch=8, optimizer=ADAM)
    assert g.ir().stage("train-lm").attributes["batch"] == 8
