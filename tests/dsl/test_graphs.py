"""The two example-shaped graphs, as plain data and through the compiler."""

from pathlib import Path

import pytest

import flowgraph as fg
from flowgraph.ir.cluster import Cluster, DeviceKind, Node
from flowgraph.ir.graph import Graph
from flowgraph.ir.verify import verify_flow
from flowgraph.passes import compile_graph

GRAPHS = Path(__file__).parent / "graphs"
LAPTOP = Cluster(
    name="laptop",
    kinds=(DeviceKind(name="cpu", slots=8, memory_bytes=8 << 30),),
    nodes=(Node(name="here", device="cpu", devices=2, cores=2, memory_bytes=8 << 30),),
)


def load(name: str, **settings: str) -> Graph:
    return fg.load_graph(str(GRAPHS / f"{name}.py"), settings)


@pytest.mark.parametrize("name", ["two_agents", "pictures"])
def test_a_graph_is_legal_ir_and_compiles_to_a_plan(name: str) -> None:
    graph = load(name)
    verify_flow(graph)
    assert compile_graph(graph, LAPTOP).tasks


@pytest.mark.parametrize("name", ["two_agents", "pictures"])
def test_loading_a_graph_twice_gives_equal_data(name: str) -> None:
    assert load(name) == load(name)


def test_the_agents_graph_flows_from_tasks_to_two_train_stages() -> None:
    graph = load("two_agents", batch="8")
    assert [(stage.name, stage.op) for stage in graph.stages] == [
        ("tasks", "source"),
        ("games", "episodes"),
        ("always-accept", "evaluate"),
        ("games-solver-groups", "group"),
        ("train-solver.credit", "map"),
        ("train-solver", "train"),
        ("games-verifier-groups", "group"),
        ("train-verifier.credit", "map"),
        ("train-verifier", "train"),
    ]
    assert graph.stage("games").outputs == ("games.solver", "games.verifier")
    assert graph.stage("train-solver").attributes["batch"] == 8
    assert graph.settings == {"batch": 8, "tries": 16, "lr": 2e-3}
    assert graph.agent("verifier").after == ("solver",)
    assert graph.agent("solver").expect == {"calls": 1.4, "prompt": 8, "response": 3}


def test_a_vision_tower_is_handed_the_fields_that_it_reads() -> None:
    graph = load("pictures")
    assert graph.stream("images").type.field("scales")
    assert graph.stage("vit-apply").attributes["inputs"] == ("patches", "rows", "cols")


def test_the_pictures_graph_brings_features_back_to_their_samples() -> None:
    graph = load("pictures")
    assert str(graph.stream("vit-apply").type) == (
        "(sample: int64, item: int64, features: float32[features*, 64]) by (sample, item)"
    )
    joined = graph.stream("samples-join").type
    assert joined.key == ("sample",)
    assert str(joined.field("features")) == "features: float32[images*, features*, 64]"
    assert graph.stage("train-lm").modules == ("lm", "vit")
    assert graph.stage("held-out").attributes["source"] == {
        "module": "pictures",
        "qualname": "questions",
        "path": "pictures.py",
        "digest": graph.stage("samples").function.digest,  # type: ignore[union-attr]
        "params": {"split": "test"},
    }


def test_stages_say_the_line_that_declared_them() -> None:
    lines = (GRAPHS / "pictures.py").read_text().splitlines()
    graph = load("pictures")
    for stage in graph.stages:
        assert stage.at.file.endswith("pictures.py")
    assert "g.source(" in lines[graph.stage("samples").at.line - 1]
    assert ".unnest(" in lines[graph.stage("images").at.line - 1]


def test_agents_and_trainers_want_a_device_and_other_stages_none() -> None:
    devices = {stage.op: stage.devices for stage in load("pictures").stages}
    assert devices == {
        "source": 0, "unnest": 0, "apply": 1, "join": 0, "pack": 0, "train": 1, "evaluate": 0
    }  # fmt: skip
