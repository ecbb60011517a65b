"""Functions by name: found where they were, with their neighbours; changed code is noticed."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import FunctionRef
from flowgraph.runtime.failures import FunctionUnavailable
from flowgraph.runtime.functions import digest, load


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A user's folder; what was imported from it is forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return digest(file)


def test_a_file_is_imported_from_the_root_with_its_neighbours(root: Path) -> None:
    write(root / "graphs" / "neighbour_a.py", "LEVEL = 3\n")
    text = "from neighbour_a import LEVEL\n\n\ndef f(x: int) -> int:\n    return x + LEVEL\n"
    hash = write(root / "graphs" / "graph_a.py", text)
    ref = FunctionRef(module="graph_a", qualname="f", path="graphs/graph_a.py", digest=hash)
    f = load(ref, str(root), exact=True)
    assert f(1) == 4
    assert load(ref, str(root), exact=True) is f


def test_a_module_inside_a_package_is_imported_from_above_it(root: Path) -> None:
    write(root / "package_b" / "__init__.py", "")
    write(
        root / "package_b" / "inner.py",
        "class C:\n    @staticmethod\n    def g():\n        return 7\n",
    )
    ref = FunctionRef(module="package_b.inner", qualname="C.g", path="package_b/inner.py")
    assert load(ref, str(root), exact=False)() == 7


def test_an_installed_function_needs_no_path() -> None:
    ref = FunctionRef(module="json", qualname="dumps")
    assert load(ref, "/nowhere", exact=True)([1]) == "[1]"


def test_changed_code_warns_and_is_refused_when_exact(root: Path) -> None:
    write(root / "graph_c.py", "def f():\n    return 1\n")
    ref = FunctionRef(module="graph_c", qualname="f", path="graph_c.py", digest="0" * 32)
    with pytest.warns(UserWarning, match=r"graph_c\.py changed since the graph was compiled"):
        assert load(ref, str(root), exact=False)() == 1
    with pytest.raises(ConfigurationError, match="changed since the graph was compiled"):
        load(ref, str(root), exact=True)


def test_unchanged_code_does_not_warn(root: Path) -> None:
    hash = write(root / "graph_d.py", "def f():\n    return 1\n")
    ref = FunctionRef(module="graph_d", qualname="f", path="graph_d.py", digest=hash)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(ref, str(root), exact=False)


def test_a_missing_file_is_named(root: Path) -> None:
    ref = FunctionRef(module="graph_e", qualname="f", path="graph_e.py")
    with pytest.raises(FunctionUnavailable, match=f"graph_e:f: no file {root}/graph_e.py"):
        load(ref, str(root), exact=False)


def test_a_missing_function_is_named(root: Path) -> None:
    write(root / "graph_f.py", "x = 1\n")
    ref = FunctionRef(module="graph_f", qualname="x", path="graph_f.py")
    with pytest.raises(FunctionUnavailable, match=r"graph_f\.py has no function 'x'"):
        load(ref, str(root), exact=False)


def test_a_module_that_raises_shows_its_traceback(root: Path) -> None:
    write(root / "graph_g.py", "raise RuntimeError('at import')\n")
    ref = FunctionRef(module="graph_g", qualname="f", path="graph_g.py")
    with pytest.raises(FunctionUnavailable, match="failed: RuntimeError: at import") as caught:
        load(ref, str(root), exact=False)
    assert "graph_g.py" in caught.value.trace


def test_a_name_that_is_taken_by_another_module_is_refused(root: Path) -> None:
    write(root / "json.py", "def f():\n    return 1\n")
    ref = FunctionRef(module="json", qualname="f", path="json.py")
    with pytest.raises(FunctionUnavailable, match="the name 'json' is taken by"):
        load(ref, str(root), exact=False)
