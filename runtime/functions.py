"""The user's functions, found again by name in the processes of a run."""

import importlib
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import xxhash

from flowgraph.ir.errors import ConfigurationError
from flowgraph.ir.graph import FunctionRef
from flowgraph.runtime.failures import FunctionUnavailable


def load(ref: FunctionRef, root: str, *, exact: bool) -> Callable[..., Any]:
    """The function that `ref` names; its parameters are not bound.

    A `path` is taken relative to `root`, and its folder is put on `sys.path` so that the user's
    neighbouring modules import as they do in a script. Python's own table of modules is the cache.

    Code that changed since compiling warns, and raises ConfigurationError when `exact`. Raises
    FunctionUnavailable when the module does not import or has no such function.
    """
    file = Path(root, ref.path).resolve() if ref.path else None
    if file is not None:
        _put_on_path(file, ref)
    module = _import(ref)
    found = getattr(module, "__file__", None)
    if file is not None and (found is None or Path(found).resolve() != file):
        raise FunctionUnavailable(
            f"{ref}: the name '{ref.module}' is taken by {found or 'a built-in module'}",
            hint=f"rename {file}",
        )
    if ref.digest and found is not None:
        _check_digest(ref, Path(found), exact)
    return _attribute(module, ref)


def digest(file: Path) -> str:
    """Content hash of a file as recorded in a FunctionRef: xxh3-128, hex."""
    return xxhash.xxh3_128_hexdigest(file.read_bytes())


def _put_on_path(file: Path, ref: FunctionRef) -> None:
    """First on the path, as for a script: a neighbour wins over an installed module."""
    if not file.is_file():
        raise FunctionUnavailable(
            f"{ref}: no file {file}", hint="compile again where the graph's files are"
        )
    packages = ref.module.count(".") + (file.name == "__init__.py")
    folder = str(file.parents[packages])
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _import(ref: FunctionRef) -> ModuleType:
    try:
        return importlib.import_module(ref.module)
    except Exception as error:  # whatever the user's module raises at its top level
        raise FunctionUnavailable(
            f"{ref}: importing '{ref.module}' failed: {type(error).__name__}: {error}",
            trace="".join(traceback.format_exception(error)),
        ) from error


def _check_digest(ref: FunctionRef, file: Path, exact: bool) -> None:
    if digest(file) == ref.digest:
        return
    what = f"{ref}: {file} changed since the graph was compiled"
    if exact:
        raise ConfigurationError(what, hint="compile again, or run without --exact")
    warnings.warn(what, stacklevel=3)


def _attribute(module: ModuleType, ref: FunctionRef) -> Callable[..., Any]:
    found: Any = module
    for part in ref.qualname.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise FunctionUnavailable(
            f"{ref}: {module.__file__} has no function '{ref.qualname}'",
            hint="compile again if it was renamed",
        )
    return found  # type: ignore[no-any-return]
