"""The root folders are one package: `flowgraph.<name>`, never a bare `<name>`."""

import ast
import importlib
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parent.parent


def subpackages() -> tuple[str, ...]:
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "SUBPACKAGES":  # type: ignore[attr-defined]
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("setup.py names no SUBPACKAGES")


def test_every_subpackage_of_setup_py_has_a_relative_link_in_flowgraph() -> None:
    links = {
        path.name: path.readlink() for path in (ROOT / "flowgraph").iterdir() if path.is_symlink()
    }
    assert links == {name: Path("..") / name for name in subpackages()}


def test_every_subpackage_imports_under_flowgraph() -> None:
    for name in subpackages():
        importlib.import_module(f"flowgraph.{name}")
