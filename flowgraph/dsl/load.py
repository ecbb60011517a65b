"""From a graph file on disk to a graph: import it, call its `build` with settings, record."""

import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import Any

from flowgraph.dsl.functions import AnyFunction, import_base, installed
from flowgraph.dsl.graph import Graph
from flowgraph.dsl.location import shown
from flowgraph.dsl.settings import typed_settings
from flowgraph.dsl.suggest import choices
from flowgraph.ir import graph as ir
from flowgraph.ir.errors import ConfigurationError, FlowgraphError, GraphError
from flowgraph.ir.location import Location

_loaded: set[str] = set()
"""Modules that the last `load_graph` brought in; the next one reads files anew."""


def load_graph(target: str, settings: Mapping[str, str] | None = None) -> ir.Graph:
    """The graph that `build(**settings)` of a file declares.

    target: `path.py` or `path.py:function`. settings: text by name, as from `--set`, typed by the
    function's annotations. The file is imported under its stem, with its folder first on the path,
    so that its neighbours import as in a script; that folder is the graph's root.

    >>> fg.load_graph("examples/marl_arithmetic.py", {"batch": "32"})

    Raises ConfigurationError for a file, function or setting that is not there or cannot be read,
    GraphError at the user's line for everything that is wrong in the file.
    """
    file, name = _split(target)
    with _importable(file):
        module = _import(file)
        build = _find(module, name, file)
        values = typed_settings(build, settings or {}, at=_line(build))
        with _users_errors(file, f"{name}() raised"):
            built = build(**values)
        if not isinstance(built, Graph):
            raise GraphError(
                f"{name}() must return the fg.Graph it declared, got {type(built).__name__}",
                at=_line(build),
                hint="end it with `return g`",
            )
        return built.ir(root=str(file.parent), settings=_effective(build, values))


def _split(target: str) -> tuple[Path, str]:
    text, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        text, name = target, "build"
    file = Path(os.path.abspath(text))
    if file.suffix != ".py":
        raise ConfigurationError(
            f"{text}: a graph is a Python file", hint="GRAPH.py, or GRAPH.py:build"
        )
    if not file.is_file():
        raise ConfigurationError(f"{text}: no such file")
    if not file.stem.isidentifier() or file.stem.startswith("__"):
        raise ConfigurationError(
            f"{text}: workers import it by its name, and '{file.stem}' is no module name",
            hint=f"mv {text} {file.with_name(file.stem.replace('-', '_') + '.py').name}",
        )
    return file, name


@contextmanager
def _importable(file: Path) -> Iterator[None]:
    """The file's folder first on the path; modules of the load before are forgotten."""
    _forget_stale(file.parent)
    _check_name(file)
    before = set(sys.modules)
    folder = str(file.parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        _loaded.update(name for name in set(sys.modules) - before if _lies_in(name, folder))


def _forget_stale(folder: Path) -> None:
    """Neighbours are read from this folder as it is now, not from memory."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name == "__main__" or path is None or installed(path, name):
            continue
        top = folder / name.partition(".")[0]
        shadows = top.is_dir() or top.with_suffix(".py").is_file()
        if name in _loaded or (shadows and import_base(path, name) != str(folder)):
            del sys.modules[name]
    _loaded.clear()


def _check_name(file: Path) -> None:
    """Workers put the folder first on the path: the file would hide an installed module."""
    found = importlib.util.find_spec(file.stem)
    if found is None or found.origin is None:  # a folder of that name hides behind a file
        return
    if found.origin in ("built-in", "frozen") or installed(found.origin, file.stem):
        raise ConfigurationError(
            f"{shown(str(file))}: the module name '{file.stem}' is taken ({found.origin})",
            hint="rename the file",
        )


def _lies_in(name: str, folder: str) -> bool:
    path = getattr(sys.modules[name], "__file__", None) or ""
    return path.startswith(folder + os.sep) and "site-packages" not in path


def _import(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        with _users_errors(file, "importing it raised"):
            spec.loader.exec_module(module)
    except FlowgraphError:
        del sys.modules[file.stem]
        raise
    return module


def _find(module: ModuleType, name: str, file: Path) -> AnyFunction:
    found = getattr(module, name, None)
    if found is None:
        there = [n for n, f in vars(module).items() if _returns_graph(f) and not n.startswith("_")]
        raise ConfigurationError(
            f"{shown(str(file))}: there is no function '{name}'",
            hint=choices(name, there, what="function")
            if there
            else f"def {name}() -> fg.Graph: ...",
        )
    if not inspect.isfunction(found):
        raise ConfigurationError(
            f"{shown(str(file))}: '{name}' is not a function but a {type(found).__name__}"
        )
    return found


def _returns_graph(function: Any) -> bool:
    told = getattr(function, "__annotations__", {}).get("return")
    return inspect.isfunction(function) and (told is Graph or str(told).endswith("Graph"))


@contextmanager
def _users_errors(file: Path, what: str) -> Iterator[None]:
    """Whatever the user's file raises becomes a GraphError at the user's innermost line."""
    try:
        yield
    except FlowgraphError:
        raise
    except SyntaxError as error:
        at = Location(shown(error.filename or str(file)), error.lineno or 0)
        raise GraphError(f"{error.msg}: {(error.text or '').strip()}", at=at) from error
    except Exception as error:
        text = str(error) or "no message"
        raise GraphError(
            f"{what} {type(error).__name__}: {text}", at=_innermost(error.__traceback__, file)
        ) from error


def _innermost(trace: TracebackType | None, file: Path) -> Location:
    """The deepest line in the file's folder, where the user can mend something."""
    at = Location(shown(str(file)), 1)
    for frame, line in walk_tb(trace):
        path = frame.f_code.co_filename
        if path.startswith(str(file.parent) + os.sep) and "site-packages" not in path:
            at = Location(shown(path), line)
    return at


def _line(function: AnyFunction) -> Location:
    code = inspect.unwrap(function).__code__
    return Location(shown(code.co_filename), code.co_firstlineno)


def _effective(build: AnyFunction, values: Mapping[str, Any]) -> dict[str, Any]:
    """What `build` was called with, defaults included, as plain data."""
    bound = inspect.signature(build).bind(**values)
    bound.apply_defaults()
    return {
        name: os.fspath(value) if hasattr(value, "__fspath__") else value
        for name, value in bound.arguments.items()
    }
