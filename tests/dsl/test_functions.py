"""Functions by name: module, path under the root, content hash, parameters."""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import xxhash

import flowgraph as fg
from flowgraph.dsl.functions import import_base, refer, resolve
from flowgraph.dsl.plain import plain
from flowgraph.ir.errors import GraphError
from flowgraph.ir.graph import FunctionRef, Graph
from flowgraph.runtime.functions import load

ROOT = Path(__file__).parent.parent.parent


@dataclass
class Task:
    text: str


class Tasks(Sequence[Task]):
    """A source may be a class; its records are those that it is a sequence of."""

    def __init__(self, *, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return Task(str(index))


class Texts:
    """Or those that its `__getitem__` gives."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Task:
        return Task(str(index))


class Group:
    @staticmethod
    def tasks() -> Iterable[Task]:
        return []


def tasks() -> list[Task]:
    return []


def log(record: Task) -> None: ...


def one_source(function: object, **params: object) -> Graph:
    g = fg.Graph("g")
    g.source("tasks", function, **params).sink(log)  # type: ignore[arg-type]
    return g.ir()


def source_of(graph: Graph) -> FunctionRef:
    function = graph.stage("tasks").function
    assert function is not None
    return function


def test_a_function_is_named_by_module_path_digest_and_parameters() -> None:
    graph = one_source(Tasks, size=3)
    assert graph.root == str(ROOT)
    assert source_of(graph) == FunctionRef(
        module="tests.dsl.test_functions",
        qualname="Tasks",
        path="tests/dsl/test_functions.py",
        digest=xxhash.xxh3_128_hexdigest(Path(__file__).read_bytes()),
        params={"size": 3},
    )


@pytest.mark.parametrize("function", [tasks, Tasks, Texts, Group.tasks])
def test_workers_find_what_was_named(function: object) -> None:
    graph = one_source(function, **({"size": 1} if function is Tasks else {}))
    assert load(source_of(graph), graph.root, exact=True) is function
    assert graph.stream("tasks").type.names == ("sample", "text")


def test_a_function_of_an_installed_package_has_no_path() -> None:
    reference = refer(fg.models.decoder, {}, role="model 'decoder'")
    assert reference.path == ""
    assert reference.digest
    assert resolve(str(reference), role="model 'decoder'") is fg.models.decoder


def test_a_script_that_builds_its_own_graph_is_named_by_its_stem(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "import flowgraph as fg\n"
        "@dataclass\n"
        "class Task:\n"
        "    text: str\n"
        "def tasks() -> list[Task]: ...\n"
        "def log(task: Task) -> None: ...\n"
        "g = fg.Graph('g')\n"
        "g.source('tasks', tasks).sink(log)\n"
        "ref = g.ir().stage('tasks').function\n"
        "print(ref.module, ref.path, g.ir().root)\n"
    )
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["mine", "mine.py", str(tmp_path)]


@pytest.mark.parametrize(
    ("path", "module", "base"),
    [
        ("/a/graph.py", "graph", "/a"),
        ("/a/b/c.py", "b.c", "/a"),
        ("/a/b/__init__.py", "b", "/a"),
        ("/a/b/c/__init__.py", "b.c", "/a"),
        ("/a/loaded_by_path.py", "other.name", "/a"),
    ],
)
def test_the_root_is_what_must_be_importable(path: str, module: str, base: str) -> None:
    assert import_base(path, module) == base


def test_parameters_are_kept_as_plain_data() -> None:
    import numpy as np

    kept = plain({"a": [1, (2.5, None)], "b": {"c": True}, "d": np.float64(0.5)}, "x")
    assert kept == {"a": (1, (2.5, None)), "b": {"c": True}, "d": 0.5}
    assert type(kept["d"]) is float


@pytest.mark.parametrize("value", [{1: 2}, {1, 2}, object(), b"bytes", float("nan"), [tasks]])
def test_what_is_no_plain_data_is_refused(value: object) -> None:
    with pytest.raises(GraphError, match="  x"):
        plain(value, "x")


@pytest.mark.parametrize("name", ["nowhere", "no.module:f", "math:no_such", "math:pi"])
def test_a_name_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="loss"):
        resolve(name, role="loss")
