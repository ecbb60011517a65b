"""Train stages: credit, losses, optimizers, what they evaluate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import flowgraph as fg
from flowgraph.dsl.models import AgentRef
from flowgraph.dsl.stream import Stream
from flowgraph.ir.errors import GraphError
from flowgraph.ir.verify import verify_flow


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
    assert stage.attributes == {"credit": True, "group": ("sample",), "size": 0}
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


async def play(text: Text, player: fg.Agent) -> fg.Rewards:
    return fg.Rewards({"player": 0.0})


def rows_of(g: fg.Graph, mean: Any = None, **agent: Any) -> tuple[AgentRef, Stream]:
    expect = None if mean is None else fg.Calls(mean=mean)
    player = g.agent("player", LM, expect=expect, **agent)
    games = g.source("texts", texts).episodes(play, agents=[player], trajectories=8)
    return player, games.rows(player)


@pytest.mark.parametrize(
    ("mean", "by", "size", "said"),
    [
        (1, "task", 5, r"got 8 rows a sample = 1 x 5 \+ 3 \(8 trajectories x 1 call;"),
        (3, "task", 16, r"got 24 rows a sample = 1 x 16 \+ 8 \(8 trajectories x 3 calls;"),
        (
            3,
            ("task", "trajectory"),
            2,
            r"got 3 rows a sample and trajectory = 1 x 2 \+ 1 \(3 calls",
        ),
        (3, ("task", "call"), 16, r"got 8 rows a sample and call = 0 x 16 \+ 8 \(8 trajectories;"),
        (1.5, "task", 4, "how many rows share a sample differs: 'player' is called 1.5 times"),
        (fg.spread(2, p95=4), "task", 4, "'player' is called 2 times a trajectory on average"),
    ],
)
def test_a_group_size_that_cannot_divide_the_rows_of_a_key_is_refused_with_the_sum(
    g: fg.Graph, mean: Any, by: Any, size: int, said: str
) -> None:
    _, rows = rows_of(g, mean)
    with pytest.raises(GraphError, match=said):
        rows.group(by, size=size)


@pytest.mark.parametrize(
    ("mean", "by", "size"),
    [(3, "task", 12), (3, ("task", "call"), 4), (None, "task", 5), (1.5, "task", 0)],
)
def test_a_group_size_that_may_divide_the_rows_of_a_key_is_taken(
    g: fg.Graph, mean: Any, by: Any, size: int
) -> None:
    player, rows = rows_of(g, mean)
    rows.group(by, size=size).train(player.module, loss=fg.grpo(), batch=4, optimizer=ADAM)
    assert g.ir().stage("train-player.credit").attributes["size"] == size


def test_records_of_a_source_have_no_others_of_their_key(g: fg.Graph) -> None:
    with pytest.raises(GraphError, match=r"got 1 rows a sample = 0 x 4 \+ 1 \(a source makes one"):
        g.source("texts", texts).group(size=4)


def test_ppo_is_credited_by_group(g: fg.Graph) -> None:
    player, rows = rows_of(g)
    rows.group().train(player.module, loss=fg.ppo(kl=0.0), batch=4, optimizer=ADAM)
    stage = g.ir().stage("train-player.credit")
    assert str(stage.function) == "flowgraph.algorithms.ppo:advantages"


def test_a_reference_made_like_the_trained_module_starts_as_it(g: fg.Graph) -> None:
    player, rows = rows_of(g)
    other = fg.model(fg.models.decoder, vocab=20, layers=2, width=16, heads=2, max_length=64)
    alike, unlike = (
        g.module(name, model, trainable=False) for name, model in (("alike", LM), ("unlike", other))
    )
    rows = rows.group()
    rows.train(player.module, loss=fg.ppo(), reference=alike, batch=4, optimizer=ADAM)
    second = g.module("second", LM)
    with pytest.raises(GraphError, match="'alike' has the initial weights of 'player'"):
        rows.train(second, loss=fg.ppo(), reference=alike, batch=4, optimizer=ADAM)
    rows.train(second, loss=fg.ppo(), reference=unlike, batch=4, optimizer=ADAM)
    graph = g.ir()
    assert graph.module("alike").starts_as == "player"
    assert graph.module("unlike").starts_as == ""
    verify_flow(graph)


def test_an_agent_at_temperature_0_cannot_be_trained(g: fg.Graph) -> None:
    player, rows = rows_of(g, temperature=0)
    with pytest.raises(GraphError, match="agent 'player' samples at temperature 0"):
        rows.group().train(player.module, loss=fg.grpo(), batch=4, optimizer=ADAM)
    # Played but not trained, it may.
    games = g.draft.stages["play"]
    assert games.agents == ("player",)
    rows.sink(log)


def log(record: object) -> None: ...


def test_rows_may_be_joined_in_several_steps_before_they_are_trained(g: fg.Graph) -> None:
    rows = g.source("texts", texts).map(judge)
    joined = rows.join(rows.map(bonus)).join(rows.map(malus))
    joined.train(g.module("lm", LM), loss=fg.token_cross_entropy(), batch=4, optimizer=ADAM)
    assert joined.type.names[-2:] == ("bonus", "malus")
    verify_flow(g.ir())


def test_a_row_whose_partner_a_filter_leaves_out_is_seen_when_it_is_joined(g: fg.Graph) -> None:
    _, rows = rows_of(g)
    with pytest.raises(GraphError, match=r"filter 'good' .* leaves records out of 'bonus'"):
        rows.join(rows.filter(good).map(bonus))
    kept = rows.filter(good, name="kept")
    assert kept.join(rows.map(bonus)).type.names[-1] == "bonus"
    assert kept.join(kept.map(malus)).type.names[-1] == "malus"
    # A filter of samples decides membership, for all branches.
    samples = g.source("more", texts)
    assert samples.join(samples.filter(good).map(bonus)).type.names[-1] == "bonus"


@dataclass
class Bonus:
    bonus: float


@dataclass
class Malus:
    malus: float


def bonus(text: object) -> Bonus:
    return Bonus(1.0)


def malus(text: object) -> Malus:
    return Malus(1.0)


def good(text: object) -> bool:
    return True
