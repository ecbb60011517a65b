"""What each stage records: names, types, attributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pytest

import flowgraph as fg
from flowgraph.ir.errors import GraphError
from flowgraph.ir.types import RecordType


@dataclass
class Task:
    text: str
    images: Annotated[list[npt.NDArray[np.float32]], fg.tensor("float32", fg.ragged("images"), 8)]


@dataclass
class Words:
    tokens: list[int]


def tasks() -> Sequence[Task]:
    return []


def words(task: Task, *, most: int = 3) -> Words:
    return Words([len(task.text)][:most])


def _untidy(task: Task) -> Words:
    return words(task)


def columns(batch: dict[str, Any]) -> dict[str, Any]:
    return batch


def untyped(record):  # type: ignore[no-untyped-def]
    return True


def log(record: object) -> None: ...


async def play(task: Task, a: fg.Agent, b: fg.Agent, *, cost: float = 0.1) -> fg.Rewards:
    return fg.Rewards({})


async def play_with_any(task: Task, *agents: fg.Agent) -> fg.Rewards:
    return fg.Rewards({})


def small(*, width: int) -> Any:
    raise AssertionError("factories are named, never called")


def describe(*, width: int) -> dict[str, Any]:
    if width > 9:
        raise ValueError(f"width {width} is too wide")
    return {"kind": "generic", "parameters": width * width, "max_length": 32}


def encoder(*, out_width: int) -> Any:
    raise AssertionError("factories are named, never called")


encoder.describe = lambda *, out_width: {"out_width": out_width}  # type: ignore[attr-defined]


def reader(*, fields: list[str]) -> Any:
    raise AssertionError("factories are named, never called")


reader.describe = lambda *, fields: {"inputs": fields}  # type: ignore[attr-defined]


small.describe = describe  # type: ignore[attr-defined]

LM = fg.model(fg.models.decoder, vocab=20, layers=1, width=16, heads=2, max_length=64)
ENCODER = fg.model(encoder, out_width=24)


@pytest.fixture
def g() -> fg.Graph:
    return fg.Graph("g")


def test_a_map_replaces_all_fields_but_the_key(g: fg.Graph) -> None:
    made = g.source("tasks", tasks).map(words, most=2)
    assert str(made.type) == "(sample: int64, tokens: int64[tokens*]) by (sample)"
    made.sink(log)
    stage = g.ir().stage("words")
    assert stage.function is not None
    assert stage.function.params == {"most": 2}
    assert stage.attributes == {"batched": False}


def test_stages_without_a_name_take_the_functions_and_a_number_when_it_is_taken(
    g: fg.Graph,
) -> None:
    source = g.source("tasks", tasks)
    assert [source.map(words).name for _ in range(3)] == ["words", "words-2", "words-3"]
    assert source.map(_untidy).name == "untidy"
    assert source.map(words, name="mine").name == "mine"


def test_a_batched_map_states_its_type_as_a_class_or_as_ir(g: fg.Graph) -> None:
    source = g.source("tasks", tasks)
    made = source.map(columns, batched=True, type=Words)
    assert made.type.names == ("sample", "tokens")
    assert isinstance(made.type, RecordType)
    assert source.map(columns, batched=True, type=made.type).type == made.type
    with pytest.raises(GraphError, match="type=Answer at the stage"):
        source.map(columns, batched=True)


def test_a_filter_keeps_the_type_and_records_the_share_it_expects_to_keep(g: fg.Graph) -> None:
    source = g.source("tasks", tasks, at_end="short", shuffle=True)
    kept = source.filter(untyped, expect=0.25)
    assert kept.type == source.type
    kept.sink(log)
    assert g.ir().stage("untyped").attributes["expect"] == 0.25
    assert g.ir().stage("tasks").attributes == {"at_end": "short", "shuffle": True}


@pytest.mark.parametrize("expect", [0.0, 1.5, float("nan"), True])
def test_a_share_lies_between_0_and_1(g: fg.Graph, expect: float) -> None:
    with pytest.raises(GraphError, match="expect, a share: expects a number above 0"):
        g.source("tasks", tasks).filter(untyped, expect=expect)


def test_items_lose_the_dim_and_a_join_gives_it_back(g: fg.Graph) -> None:
    samples = g.source("tasks", tasks)
    items = samples.unnest("images", expect=2)
    assert str(items.type) == "(sample: int64, item: int64, images: float32[8]) by (sample, item)"
    features = items.apply(g.module("vit", ENCODER))
    assert str(features.type.field("features")) == "features: float32[24]"
    joined = samples.join(features)
    assert str(joined.type.field("features")) == "features: float32[images*, 24]"
    with pytest.raises(GraphError, match="both have field 'features'"):
        joined.join(features)


def test_encode_is_apply(g: fg.Graph) -> None:
    items = g.source("tasks", tasks).unnest("images")
    vit = g.module("vit", ENCODER)
    assert items.encode(vit).type == items.apply(vit).type


def test_the_output_of_an_undescribed_module_is_of_some_width_unless_told(g: fg.Graph) -> None:
    reward = g.module("reward", fg.model(small, width=3), dtype="bfloat16")
    items = g.source("tasks", tasks).unnest("images")
    assert str(items.apply(reward).type.field("features")) == "features: bfloat16[features_width]"
    told = items.apply(reward, output="score", type=fg.tensor("float32"), inputs=["images"])
    assert str(told.type.field("score")) == "score: float32"
    with pytest.raises(GraphError, match="stream 'images' has no such field"):
        items.apply(reward, inputs=["image"])


def test_a_module_that_says_what_it_reads_is_handed_just_that(g: fg.Graph) -> None:
    samples = g.source("tasks", tasks)
    one = g.module("one", fg.model(reader, fields=["images"]))
    samples.apply(one).sink(log)
    assert g.ir().stage("one-apply").attributes["inputs"] == ("images",)
    with pytest.raises(GraphError, match="the module reads 'images', which is not among"):
        samples.apply(one, inputs=["text"])
    two = g.module("two", fg.model(reader, fields=["grid"]))
    with pytest.raises(GraphError, match="expects field 'grid'"):
        samples.apply(two)


def test_a_users_factory_may_describe_what_it_makes(g: fg.Graph) -> None:
    agent = g.agent("a", fg.model(small, width=3))
    g.source("tasks", tasks).episodes(play_with_any, agents=[agent], trajectories=1).rows(
        agent
    ).sink(log)
    assert g.ir().module("a").description["parameters"] == 9
    assert g.ir().agent("a").sampling["max_length"] == 32
    with pytest.raises(GraphError, match="model 'small': width 10 is too wide"):
        fg.model(small, width=10)


def test_a_group_goes_by_task_by_sample_or_by_the_sources_name(g: fg.Graph) -> None:
    agent = g.agent("a", LM)
    games = g.source("tasks", tasks).episodes(play_with_any, agents=[agent], trajectories=2)
    rows = games.rows(agent)
    for by in ("task", "sample", "tasks", ("task", "call")):
        rows.group(by).sink(log)
    keys = [stage.attributes["by"] for stage in g.ir().by_op("group")]
    assert keys == [("sample",), ("sample",), ("sample",), ("sample", "call")]
    with pytest.raises(GraphError, match="the first key is the sample"):
        rows.group("call")
    with pytest.raises(GraphError, match="size, in rows"):
        rows.group("task", size=-1)


def test_agents_come_in_the_order_of_the_parameters_that_have_their_names(g: fg.Graph) -> None:
    a, b = g.agent("a", LM), g.agent("b", LM)
    source = g.source("tasks", tasks)
    source.episodes(play, agents=[b, a], trajectories=1).rows(a).sink(log)
    source.episodes(play_with_any, agents=[b, a], trajectories=1).rows(a).sink(log)
    assert g.ir().stage("play").agents == ("a", "b")
    assert g.ir().stage("play_with_any").agents == ("b", "a")


def test_agents_with_other_names_go_by_position(g: fg.Graph) -> None:
    x, y = g.agent("x", LM), g.agent("y", LM)
    games = g.source("tasks", tasks).episodes(play, agents=[y, x], trajectories=1)
    games.rows(x).sink(log)
    assert g.ir().stage("play").agents == ("y", "x")


def test_only_the_rows_that_are_asked_for_become_streams(g: fg.Graph) -> None:
    a, b = g.agent("a", LM), g.agent("b", LM)
    games = g.source("tasks", tasks).episodes(play, agents=[a, b], trajectories=1)
    games.rows(b).sink(log)
    assert g.ir().stage("play").outputs == ("play.b",)
    assert games.rows(b) == games.rows(b)
    games.rows(a).sink(log)
    assert g.ir().stage("play").outputs == ("play.a", "play.b")
    with pytest.raises(GraphError, match="'c' does not play in it"):
        games.rows(g.agent("c", LM))


def test_agents_may_share_a_module(g: fg.Graph) -> None:
    module = g.module("shared", LM)
    a, b = g.agent("a", module, temperature=0.5, stop=[2]), g.agent("b", module, max_tokens=5)
    g.source("tasks", tasks).episodes(play, agents=[a, b], trajectories=1).rows(a).sink(log)
    graph = g.ir()
    assert {agent.module for agent in graph.agents} == {"shared"}
    assert graph.agent("a").sampling == {"temperature": 0.5, "max_length": 64, "stop": (2,)}
    assert graph.agent("b").sampling["max_tokens"] == 5
    with pytest.raises(GraphError, match="max_length=65, but the model holds 64 tokens"):
        g.agent("long", module, max_length=65)
    with pytest.raises(GraphError, match="module 'shared' is declared already"):
        g.agent("shared", LM)


def test_expectations_may_have_a_tail() -> None:
    calls = fg.Calls(mean=2, response=fg.spread(300, p95=2000))
    assert calls.data() == {"calls": 2, "response": {"mean": 300.0, "p95": 2000.0}}
    with pytest.raises(GraphError, match="0 < mean <= p95"):
        fg.spread(10, p95=3)
    with pytest.raises(GraphError, match="Calls: mean must be a number above 0"):
        fg.Calls(mean=0)


def test_overrides_of_an_evaluation_are_recorded_alone(g: fg.Graph) -> None:
    a, b = g.agent("a", LM), g.agent("b", LM)
    games = g.source("tasks", tasks).episodes(play, agents=[a, b], trajectories=1, cost=0.2)
    games.rows(a).sink(log)
    games.evaluate("free", cost=0.0, samples=8, every=5)
    stage = g.ir().stage("free")
    assert stage.attributes["overrides"] == {"cost": 0.0}
    assert (stage.attributes["of"], stage.attributes["every"]) == ("play", 5)
    with pytest.raises(GraphError, match="'a' of 'play' is filled in by the runtime"):
        games.evaluate("wrong", a=1)


def test_trainable_may_list_patterns(g: fg.Graph) -> None:
    assert g.module("part", LM, trainable=["head.*"]).name == "part"
    assert g.draft.modules["part"].trainable == ("head.*",)
    g.module("none", LM, trainable=[])
    assert g.draft.modules["none"].trainable is False
    with pytest.raises(GraphError, match="lists patterns"):
        g.module("text", LM, trainable="head.*")


def test_a_tokenizer_is_a_class_and_its_fields(g: fg.Graph) -> None:
    g.agent("a", LM, tokenizer=fg.tokenizers.CharTokenizer("01"))
    reference = g.draft.agents["a"].tokenizer
    assert reference is not None
    assert str(reference) == "flowgraph.tokenizers:CharTokenizer"
    assert reference.params == {"alphabet": "01"}
    with pytest.raises(GraphError, match="expects a dataclass of plain data, got str"):
        g.agent("b", LM, tokenizer="01")


def test_pins_are_kept_and_checked_for_their_form(g: fg.Graph) -> None:
    g.pin("solver.engines", 2)
    g.pin("solver.engines", 2)
    assert g.draft.pins == {"solver.engines": 2}
    with pytest.raises(GraphError, match=r"subject\.decision"):
        g.pin("engines", 2)


def test_what_is_refused_leaves_the_graph_as_it_was(g: fg.Graph) -> None:
    source = g.source("tasks", tasks)
    a = g.agent("a", LM)
    before = (dict(g.draft.stages), dict(g.draft.streams), dict(g.draft.agents))
    wrong: list[Any] = [
        lambda: source.map(untyped),
        lambda: source.unnest("nothing"),
        lambda: source.episodes(play, agents=[a], trajectories=0),
        lambda: source.train(a.module, loss=fg.grpo(), batch=1, optimizer=fg.adam(1)),
        lambda: g.agent("b", LM, max_tokens=100),
        lambda: g.source("tasks", tasks),
        lambda: source.filter(untyped, devices=-1),
    ]
    for declare in wrong:
        with pytest.raises(GraphError):
            declare()
    assert (g.draft.stages, g.draft.streams, g.draft.agents) == before


@pytest.mark.parametrize(
    "arguments", [{"steps": 0}, {"seed": -1}, {"steps": 1.5}, {"name": ""}, {"name": "a/b"}]
)
def test_a_graph_checks_its_own_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        fg.Graph(**{"name": "g", **arguments})


def test_a_graph_without_stages_is_no_graph(g: fg.Graph) -> None:
    with pytest.raises(GraphError, match="has no stages"):
        g.ir()
