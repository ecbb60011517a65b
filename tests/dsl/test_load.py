"""From a file and `--set` texts to a graph."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowgraph as fg
from flowgraph.dsl.settings import typed_settings
from flowgraph.ir.errors import ConfigurationError, FlowgraphError, GraphError
from flowgraph.ir.location import Location

GRAPH = """
import flowgraph as fg
from neighbour import Task, name, tasks

def log(task: Task) -> None: ...

def build(steps: int = 3) -> fg.Graph:
    g = fg.Graph(name(), steps=steps)
    g.source("tasks", tasks).sink(log)
    return g

def other() -> fg.Graph:
    return build(steps=7)
"""
NEIGHBOUR = """
from dataclasses import dataclass

@dataclass
class Task:
    text: str

def tasks() -> list[Task]: ...

def name() -> str:
    return "{name}"
"""
HERE = Location("graph.py", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mygraph.py").write_text(GRAPH)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR.format(name="first"))
    return tmp_path


def test_the_folder_of_the_file_is_the_root_and_neighbours_import(folder: Path) -> None:
    graph = fg.load_graph(str(folder / "mygraph.py"), {"steps": "5"})
    assert (graph.name, graph.steps, graph.root) == ("first", 5, str(folder))
    function = graph.stage("tasks").function
    assert function is not None
    assert (function.module, function.path) == ("neighbour", "neighbour.py")


def test_another_function_of_the_file_may_build(folder: Path) -> None:
    assert fg.load_graph(f"{folder / 'mygraph.py'}:other").steps == 7


def test_a_changed_neighbour_and_an_equally_named_one_elsewhere_are_read_anew(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert fg.load_graph(str(folder / "mygraph.py")).name == "first"
    (folder / "neighbour.py").write_text(NEIGHBOUR.format(name="changed"))
    assert fg.load_graph(str(folder / "mygraph.py")).name == "changed"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mygraph.py").write_text(GRAPH)
    (elsewhere / "neighbour.py").write_text(NEIGHBOUR.format(name="second one"))
    assert fg.load_graph(str(elsewhere / "mygraph.py")).name == "second one"
    assert fg.load_graph(str(folder / "mygraph.py")).name == "changed"


def test_a_module_of_another_folder_does_not_stand_for_a_neighbour(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "mygraph.py").write_text(GRAPH.replace("neighbour", "nearby"))
    for place, name in ((folder, "mine"), (elsewhere, "theirs")):
        (place / "nearby.py").write_text(NEIGHBOUR.format(name=name))
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(elsewhere))
        importlib.import_module("nearby")
    assert fg.load_graph(str(folder / "mygraph.py")).name == "mine"


def test_loading_leaves_the_import_path_as_it_was(folder: Path) -> None:
    before = list(sys.path)
    fg.load_graph(str(folder / "mygraph.py"))
    assert sys.path == before
    (folder / "mygraph.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(GraphError, match="importing it raised RuntimeError: broken"):
        fg.load_graph(str(folder / "mygraph.py"))
    assert sys.path == before
    assert "mygraph" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.py", "no such file"),
        ("graph.yaml", "a graph is a Python file"),
        ("json.py", "the module name 'json' is taken"),
        ("pytest.py", "the module name 'pytest' is taken"),
        ("sys.py", r"the module name 'sys' is taken \(built-in\)"),
        ("my-graph.py", "'my-graph' is no module name"),
    ],
)
def test_a_file_that_workers_could_not_import_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    if name != "absent.py":
        (tmp_path / name).write_text(GRAPH)
    with pytest.raises(ConfigurationError, match=message):
        fg.load_graph(str(tmp_path / name))


def test_an_error_of_the_users_keeps_its_cause_for_the_traceback(folder: Path) -> None:
    (folder / "neighbour.py").write_text(NEIGHBOUR.replace('return "{name}"', "return 1 / 0"))
    with pytest.raises(GraphError) as caught:
        fg.load_graph(str(folder / "mygraph.py"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.at is not None
    assert caught.value.at.file.endswith("neighbour.py")


def typed(build: Any, **settings: str) -> dict[str, Any]:
    return typed_settings(build, settings, at=HERE)


def many(  # type: ignore[no-untyped-def]
    count: int = 1,
    rate: float = 0.1,
    loud: bool = False,
    name: str = "x",
    folder: Path = Path(),
    size: Literal["small", 3] = "small",
    limit: int | None = None,
    model: str | None = None,
    widths: Sequence[int] = (),
    pair: tuple[float, ...] = (),
    guessed=2,
) -> None: ...


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "-3", -3),
        ("rate", "1e-3", 1e-3),
        ("loud", "True", True),
        ("loud", "off", False),
        ("name", "1", "1"),
        ("folder", "a/b", Path("a/b")),
        ("size", "3", 3),
        ("limit", "none", None),
        ("limit", "4", 4),
        ("model", "none", None),
        ("model", "a", "a"),
        ("widths", "1, 2", [1, 2]),
        ("widths", "", []),
        ("pair", "1,2.5", (1.0, 2.5)),
        ("guessed", "5", 5),
    ],
)
def test_a_text_becomes_the_annotated_type(name: str, text: str, value: Any) -> None:
    found = typed(many, **{name: text})[name]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("count", "1.5", "expects int"),
        ("loud", "perhaps", "expects bool"),
        ("size", "large", "expects one of small, 3"),
        ("limit", "much", "expects int | None"),
        ("widths", "1,a", "expects Sequence"),
    ],
)
def test_a_text_of_another_type_is_refused(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        typed(many, **{name: text})
    assert f"setting '{name}': {expected}" in str(caught.value)


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text()))
def test_what_python_prints_is_read_back(value: int | float | bool | str) -> None:
    def build(x: Any) -> None: ...

    build.__annotations__["x"] = type(value)
    assert typed(build, x=str(value)) == {"x": value}


def test_build_must_take_named_settings() -> None:
    def anything(**settings: str) -> None: ...

    with pytest.raises(FlowgraphError, match="settings are named parameters"):
        typed(anything, x="1")


def test_a_cluster_file_is_named_from_the_graph_files_folder_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graphs").mkdir()
    (tmp_path / "common").mkdir()
    text = GRAPH.replace("from neighbour", "from common_tasks")
    text = text.replace("fg.Graph(name(),", "fg.Graph(name(), cluster='mine.yaml',")
    assert text.count("cluster='mine.yaml'") == 1
    (tmp_path / "graphs" / "mygraph.py").write_text(text)
    (tmp_path / "common" / "common_tasks.py").write_text(NEIGHBOUR.format(name="first"))
    monkeypatch.syspath_prepend(str(tmp_path / "common"))
    graph = fg.load_graph(str(tmp_path / "graphs" / "mygraph.py"))
    assert graph.root == str(tmp_path)
    assert graph.cluster == "graphs/mine.yaml"
