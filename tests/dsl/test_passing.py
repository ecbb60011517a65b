"""What maps keep, what filters read, how long records are expected to be, how stale they may be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest

import flowgraph as fg
from flowgraph.ir.errors import PlanError
from flowgraph.ir.types import Field
from flowgraph.ir.verify.runnable import verify_runnable
from flowgraph.passes import compile_graph
from tests.passes.graphs import laptop


@dataclass
class Text:
    text: str
    tokens: list[int]
    level: int = 0


class Level(NamedTuple):
    level: int


@dataclass
class Scored:
    score: float
    scores: Annotated[list[float], fg.ragged("tokens")]


def texts() -> Sequence[Text]:
    return []


def scored(text: Text) -> Scored:
    return Scored(0.0, [1.0] * len(text.tokens))


def columns(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def hard(text: Level) -> bool:
    return text.level > 3


def long(text: Text) -> bool:
    return len(text.tokens) > 3


def any_record(record: Any) -> bool:
    return bool(record)


def log(record: object) -> None: ...


async def play(text: Text, solver: fg.Agent) -> fg.Rewards:
    return fg.Rewards({})


LM = fg.model(fg.models.decoder, vocab=20, layers=1, width=16, heads=2, max_length=64)


@pytest.fixture
def g() -> fg.Graph:
    return fg.Graph("g")


def attributes(g: fg.Graph, stream: fg.Stream, stage: str) -> dict[str, Any]:
    stream.sink(log)
    return dict(g.ir().stage(stage).attributes)


def test_what_a_map_keeps_stands_between_the_key_and_what_it_makes(g: fg.Graph) -> None:
    source = g.source("texts", texts)
    made = source.map(scored, keeps=["tokens", "level", "sample"])
    assert made.type.names == ("sample", "tokens", "level", "score", "scores")
    assert made.type.field("tokens") == source.type.field("tokens")
    assert attributes(g, made, "scored")["keeps"] == ("tokens", "level")


@pytest.mark.parametrize("batched", [False, True])
def test_a_batched_map_keeps_fields_too(g: fg.Graph, batched: bool) -> None:
    function: Any = columns if batched else scored
    made = g.source("texts", texts).map(
        function, batched=batched, type=Scored, keeps=("level",), name="it"
    )
    assert made.type.names == ("sample", "level", "score", "scores")


def test_a_filter_is_handed_the_fields_of_its_record_class(g: fg.Graph) -> None:
    source = g.source("texts", texts)
    assert attributes(g, source.filter(hard), "hard")["reads"] == ("level",)
    assert attributes(g, source.filter(long), "long")["reads"] == ("text", "tokens", "level")


def test_a_filter_without_a_class_reads_what_it_says_or_anything(g: fg.Graph) -> None:
    source = g.source("texts", texts)
    assert attributes(g, source.filter(any_record, reads=["level"], name="a"), "a")["reads"] == (
        "level",
    )
    assert "reads" not in attributes(g, source.filter(any_record, name="b"), "b")
    assert "reads" not in attributes(g, source.filter(columns, batched=True, name="c"), "c")


def test_fields_of_the_class_that_have_defaults_may_be_left_unread(g: fg.Graph) -> None:
    kept = g.source("texts", texts).filter(long, reads=["tokens", "text", "sample"])
    assert attributes(g, kept, "long")["reads"] == ("tokens", "text")


def test_a_source_says_how_long_its_records_are_expected_to_be(g: fg.Graph) -> None:
    source = g.source("texts", texts, expect={"tokens": fg.spread(300, p95=2000)})
    assert attributes(g, source, "texts")["expect"] == {"tokens": {"mean": 300.0, "p95": 2000.0}}
    assert source.type.field("level") == Field(name="level", dtype="int64")


@pytest.mark.parametrize("loss", [fg.grpo(), fg.ppo(kl=0.0)])
def test_a_trainer_of_rollouts_may_declare_a_bound_on_their_staleness(
    g: fg.Graph, loss: fg.Algorithm
) -> None:
    solver = g.agent("solver", LM)
    games = g.source("texts", texts).episodes(play, agents=[solver], trajectories=4)
    games.rows(solver).group(by="task").train(
        solver.module, loss=loss, batch=4, optimizer=fg.adam(1e-3), staleness=2
    )
    plan = compile_graph(g.ir(), laptop())
    assert plan.graph.stage("train-solver").attributes["staleness"] == 2
    assert plan.graph.stream("solver.weights").delay == 3
    with pytest.raises(PlanError, match="'train-solver' declares staleness=2, and runs are syn"):
        verify_runnable(plan)
